#include "kindling/config/options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/option_checks.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"

namespace kindling {

void OptionSet::add(OptionRef option) {
  for (const OptionRef& present : refs_) {
    if (present.name == option.name) {
      throw ConfigError({.place = "option '" + option.name + "'", .found = "it is in the table twice"});
    }
  }
  refs_.push_back(std::move(option));
}

void OptionSet::append(const OptionSet& other) {
  for (const OptionRef& option : other.refs_) add(option);
}

void validate(const OptionSet& options, std::string_view place) {
  for (const OptionRef& option : options.refs()) {
    const auto check = [&]<class Scalar>(const Scalar& value, std::optional<std::size_t> index) {
      if (config::allowed(value, option.notes)) return;
      const std::string name = option.name + (index ? "[" + std::to_string(*index) + "]" : "");
      throw ConfigError({.place = std::string(place),
                         .found = name + " is " + config::toml_text(value),
                         .wanted = config::wanted_instead_of(value, option.notes)});
    };
    std::visit([&](const auto* value) { config::for_each_scalar(*value, check); }, option.value);
  }
}

// Rounding may produce a number just below a whole one: 0.1 of 30.
std::int64_t CountOrFraction::of(std::int64_t num_batches) const {
  if (const auto* count = std::get_if<std::int64_t>(&value_)) return *count;
  const double part = std::get<double>(value_) * static_cast<double>(num_batches);
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(part + 1e-9)), 1);
}

double CountOrFraction::number() const {
  return std::visit([](auto value) { return static_cast<double>(value); }, value_);
}

}  // namespace kindling
