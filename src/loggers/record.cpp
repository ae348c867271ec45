#include "kindling/loggers/record.h"

#include <algorithm>
#include <cmath>

#include "kindling/loggers/logger.h"

namespace kindling {

const double* Record::find(std::string_view name) const {
  const auto found = std::ranges::find(values, name, &std::pair<std::string, double>::first);
  return found == values.end() ? nullptr : &found->second;
}

bool has_finite_losses(const Record& record) {
  const auto is_finite = [&](std::string_view name) {
    const double* const value = record.find(name);
    return value == nullptr || std::isfinite(*value);
  };
  return is_finite("train_loss") && is_finite("val_loss");
}

bool is_beyond(const Record& record, const Progress& at) {
  if (record.kind == Record::Kind::epoch) return record.epoch > at.epoch;
  const bool is_made_again = record.kind == Record::Kind::validation && at.phase == Phase::validation;
  return is_made_again ? record.global_step >= at.global_step : record.global_step > at.global_step;
}

Logger::~Logger() = default;

}  // namespace kindling
