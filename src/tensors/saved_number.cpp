#include "tensors/saved_number.h"

#include <charconv>
#include <concepts>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

using Integers = SavedRange<std::int64_t>;
using Doubles = SavedRange<double>;

std::string bound_text(std::int64_t bound) { return std::to_string(bound); }
std::string bound_text(double bound) { return number_text(bound); }

template <class Number>
std::string expected_number(const SavedRange<Number>& range) {
  const std::string type = std::integral<Number> ? "an integer" : "a number";
  if (range.min && range.max)
    return type + " from " + bound_text(*range.min) + " to " + bound_text(*range.max);
  if (range.min) return type + " of at least " + bound_text(*range.min);
  if (range.max) return type + " of at most " + bound_text(*range.max);
  return type;
}

template <class Number>
[[noreturn]] void refuse_number(const std::string& key, const std::string& found,
                                const SavedRange<Number>& range) {
  throw CheckpointError({.place = "saved value '" + key + "'",
                         .found = found,
                         .wanted = expected_number(range),
                         .remedy = "use another checkpoint: this one is damaged or was edited"});
}

// A NaN lies outside any bound.
template <class Number>
bool is_within(Number number, const SavedRange<Number>& range) {
  return (!range.min || number >= *range.min) && (!range.max || number <= *range.max);
}

}  // namespace

template <class Number>
Number parse_saved_number(const std::string& text, const std::string& key, const SavedRange<Number>& range) {
  Number number = {};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || !is_within(number, range))
    refuse_number(key, "'" + text + "'", range);
  return number;
}

template <class Number>
std::optional<Number> find_number(const Metadata& metadata, const std::string& key,
                                  const SavedRange<Number>& range) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return parse_saved_number(found->second, key, range);
}

template <class Number>
Number number_of(const Metadata& metadata, const std::string& key, const SavedRange<Number>& range) {
  const auto number = find_number(metadata, key, range);
  if (!number) refuse_number(key, "it is missing", range);
  return *number;
}

template std::int64_t parse_saved_number(const std::string&, const std::string&, const Integers&);
template double parse_saved_number(const std::string&, const std::string&, const Doubles&);
template std::optional<std::int64_t> find_number(const Metadata&, const std::string&, const Integers&);
template std::optional<double> find_number(const Metadata&, const std::string&, const Doubles&);
template std::int64_t number_of(const Metadata&, const std::string&, const Integers&);
template double number_of(const Metadata&, const std::string&, const Doubles&);

}  // namespace kindling
