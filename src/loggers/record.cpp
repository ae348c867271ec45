#include "kindling/loggers/record.h"

#include <algorithm>

namespace kindling {

const double* Record::find(std::string_view name) const {
  const auto found = std::ranges::find(values, name, &std::pair<std::string, double>::first);
  return found == values.end() ? nullptr : &found->second;
}

bool is_beyond(const Record& record, const Progress& at) {
  return record.kind == Record::Kind::step ? record.global_step > at.global_step : record.epoch > at.epoch;
}

}  // namespace kindling
