#include "kindling/loggers/jsonl_logger.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxLinesBytes = std::size_t{1} << 40;  // beyond what a training could have written
constexpr std::string_view kStepStart = "{\"global_step\": ", kEpochStart = "{\"epoch\": ";

bool begins_beyond(std::string_view line, std::string_view start, std::int64_t last) {
  std::int64_t number = 0;
  return line.starts_with(start) &&
         std::from_chars(line.data() + start.size(), line.data() + line.size(), number).ec == std::errc() &&
         number > last;
}

}  // namespace

void JsonlLogger::write(const Record& record) {
  const std::string step = "\"global_step\": " + std::to_string(record.global_step);
  const std::string epoch = "\"epoch\": " + std::to_string(record.epoch);
  std::string line = "{" + (record.kind == Record::Kind::step ? step + ", " + epoch : epoch + ", " + step);
  for (const auto& [name, value] : record.values)
    line += ", " + json_string(name) + ": " + json_number(value);
  file_.append(line + "}\n");
  is_synced_ = false;
}

void JsonlLogger::sync() {
  if (!is_synced_) file_.sync();
  is_synced_ = true;
}

void JsonlLogger::resume_at(const Progress& at) {
  const std::string all = read_file(path_, kMaxLinesBytes);
  std::string_view rest = all;
  while (!rest.empty() && !begins_beyond(rest, kStepStart, at.global_step) &&
         !begins_beyond(rest, kEpochStart, at.epoch))
    rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  file_.cut_to(all.size() - rest.size());
}

}  // namespace kindling
