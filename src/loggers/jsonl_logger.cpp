#include "kindling/loggers/jsonl_logger.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxLinesBytes = std::size_t{1} << 40;  // larger than any run's file
constexpr std::string_view kStepKey = "\"global_step\": ", kStepStart = "{\"global_step\": ",
                           kEpochStart = "{\"epoch\": ", kStepLoss = "\"train_loss_step\": ";

// Returns -1 if there is none.
std::int64_t number_after(std::string_view line, std::string_view key) {
  std::int64_t number = -1;
  if (const auto at = line.find(key); at != std::string_view::npos)
    std::from_chars(line.data() + at + key.size(), line.data() + line.size(), number);
  return number;
}

bool line_is_beyond(std::string_view line, const Progress& at) {
  const bool is_epoch = line.starts_with(kEpochStart);
  if (!is_epoch && !line.starts_with(kStepStart)) return false;
  const bool is_step = line.find(kStepLoss) != std::string_view::npos;
  return is_beyond({.kind = is_epoch  ? Record::Kind::epoch
                            : is_step ? Record::Kind::step
                                      : Record::Kind::validation,
                    .global_step = number_after(line, kStepStart),
                    .epoch = number_after(line, kEpochStart)},
                   at);
}

}  // namespace

void JsonlLogger::write(const Record& record) {
  const std::string step = "\"global_step\": " + std::to_string(record.global_step);
  const std::string epoch = "\"epoch\": " + std::to_string(record.epoch);
  std::string line = "{" + (record.kind == Record::Kind::epoch ? epoch + ", " + step : step + ", " + epoch);
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
  std::size_t cut = all.size();
  std::int64_t latest_step = -1;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    end = std::min(all.find('\n', begin), all.size() - 1) + 1;
    const std::string_view line = std::string_view(all).substr(begin, end - begin);
    const std::int64_t step = number_after(line, kStepKey);
    if (step < latest_step) cut = all.size();  // another run, which started after this one
    latest_step = step;
    if (cut == all.size() && line_is_beyond(line, at)) cut = begin;
  }
  file_.cut_to(cut);
}

}  // namespace kindling
