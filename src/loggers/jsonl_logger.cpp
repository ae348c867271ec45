#include "kindling/loggers/jsonl_logger.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/system.h"
#include "kindling/base/json.h"
#include "loggers/missing_epochs.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxLinesBytes = std::size_t{1} << 40;  // larger than any run's file
constexpr std::size_t kMostWaiting = 1000;                    // step records
constexpr double kWriteInterval_s = 1;                        // between writes of step lines
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

// A power cut may leave zeros in the middle of a file, and the JSON parser takes a zero for the end.
bool is_json_object(std::string_view line) {
  return line.starts_with('{') && line.find('\0') == std::string_view::npos && nlohmann::json::accept(line);
}

// The lines of a file that a resumed training keeps.
struct KeptLines {
  std::size_t cut = 0;                 // the first byte beyond
  std::vector<std::size_t> damaged{};  // where lines before it begin that cannot be read
  MissingEpochs missing;

  KeptLines(std::string_view all, const Progress& at) : missing(at.epoch) {
    cut = all.size();
    std::int64_t latest_step = -1;
    for (std::size_t begin = 0; begin < all.size(); begin += line_at(all, begin).size()) {
      const std::string_view line = line_at(all, begin);
      if (!is_json_object(line)) {
        damaged.push_back(begin);
        continue;
      }
      const std::int64_t step = number_after(line, kStepKey);
      if (step < 0) continue;                                         // not a record
      const bool is_of_start = at.epoch == 0 && at.global_step == 0;  // then no line of any training is kept
      if (step < latest_step && !is_of_start) {  // another training, which has begun after this one
        cut = all.size();
        missing = MissingEpochs(at.epoch);
      }
      latest_step = step;
      if (line_is_beyond(line, at))
        cut = std::min(cut, begin);
      else if (line.starts_with(kEpochStart))
        missing.found(number_after(line, kEpochStart));
    }
    std::erase_if(damaged, [&](std::size_t begin) { return begin >= cut; });
  }

  static std::string_view line_at(std::string_view all, std::size_t begin) {
    return all.substr(begin, std::min(all.find('\n', begin), all.size() - 1) + 1 - begin);
  }

  std::string readable(std::string_view all) const {
    std::string text;
    std::size_t begin = 0;
    for (const std::size_t at : damaged) {
      text += all.substr(begin, at - begin);
      begin = at + line_at(all, at).size();
    }
    return text += all.substr(begin, cut - begin);
  }
};

void append_line(const Record& record, std::string& lines) {
  const std::string step = "\"global_step\": " + std::to_string(record.global_step);
  const std::string epoch = "\"epoch\": " + std::to_string(record.epoch);
  const bool is_epoch = record.kind == Record::Kind::epoch;
  lines.append("{").append(is_epoch ? epoch : step).append(", ").append(is_epoch ? step : epoch);
  for (const auto& [name, value] : record.values)
    lines.append(", ").append(json_string(name)).append(": ").append(json_number(value));
  if (record.digest != 0) lines.append(", \"log_digest\": ").append(std::to_string(record.digest));
  lines.append("}\n");
}

}  // namespace

JsonlLogger::JsonlLogger(const std::filesystem::path& path, std::function<double()> clock)
    : path_(path), file_(path), clock_(clock ? std::move(clock) : steady_seconds), next_write_s_(clock_()) {}

JsonlLogger::~JsonlLogger() {
  log_errors("the last records", [&] { flush(); });
}

void JsonlLogger::write(const Record& record) {
  waiting_.push_back(record);
  is_synced_ = false;
  const bool is_due = record.kind != Record::Kind::step || waiting_.size() >= kMostWaiting;
  if (is_due || clock_() >= next_write_s_) flush();
}

// Many lines in a row take half the time of lines between steps, which leave nothing in the caches.
void JsonlLogger::flush() {
  if (waiting_.empty()) return;
  next_write_s_ = clock_() + kWriteInterval_s;
  std::string lines;
  for (const Record& record : waiting_) append_line(record, lines);
  file_.append(lines);
  waiting_.clear();
}

void JsonlLogger::finish() { flush(); }

void JsonlLogger::sync() {
  flush();
  if (!is_synced_) file_.sync();
  is_synced_ = true;
}

void JsonlLogger::resume_at(const Progress& at) {
  flush();
  const std::string all = read_file(path_, kMaxLinesBytes);
  const KeptLines kept(all, at);
  if (kept.damaged.empty()) {
    file_.cut_to(kept.cut);
  } else {
    write_file_atomically(path_, kept.readable(all));
    file_ = AppendFile(path_);
  }
  report_damage(path_, kept.damaged.size(), kept.missing);
}

}  // namespace kindling
