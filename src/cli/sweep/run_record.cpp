#include "cli/sweep/run_record.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/folder.h"
#include "cli/sweep/small_file.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMaxSummaryBytes = 1 << 20, kTailBytes = 1 << 13, kMaxTailBytes = 1 << 23;

const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_in(const json& object, const char* key) {
  const json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<double> number_in(const json& object, const char* key) {
  const json* value = find(object, key);
  return value != nullptr && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::optional<std::int64_t> count_in(const json& object, const char* key) {
  const json* value = find(object, key);
  return value != nullptr && value->is_number_integer() ? std::optional(value->get<std::int64_t>())
                                                        : std::nullopt;
}

std::optional<std::int64_t> count_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t count = 0;
  const char* begin = text.data() + at + key.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), count);
  return error == std::errc() ? std::optional(count) : std::nullopt;
}

// The number of complete epochs and the newest step, from the last lines of metrics.jsonl.
void add_newest_records(const fs::path& run, RunRecord& record) {
  // The last epoch may be far from the end: a record may hold a large matrix, and steps may follow it.
  std::string tail;
  std::size_t epoch = std::string::npos;
  for (std::size_t bytes = kTailBytes; bytes <= kMaxTailBytes && epoch == std::string::npos; bytes *= 32) {
    tail = end_of_file(run / "metrics.jsonl", bytes);
    epoch = ("\n" + tail).rfind("\n{\"epoch\": ");
  }
  if (epoch != std::string::npos)
    record.epochs = count_after(std::string_view(tail).substr(epoch), "\"epoch\": ");
  const std::size_t step = tail.rfind("\"global_step\": ");
  if (step == std::string::npos) return;
  const auto newest = count_after(std::string_view(tail).substr(step), "\"global_step\": ");
  record.steps = std::max(record.steps, newest);
}

}  // namespace

std::optional<RunRecord> read_run_record(const fs::path& run) {
  const std::optional<std::string> text = small_file(run / "run.json", kMaxSummaryBytes);
  if (!text) return std::nullopt;
  RunRecord record{.status = "unreadable"};
  const json summary = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object() || text_in(summary, "status").empty()) return record;
  record.status = text_in(summary, "status");
  record.reason = text_in(summary, "reason");
  record.started = text_in(summary, "started");
  record.steps = count_in(summary, "global_step");
  record.seconds = number_in(summary, "seconds");
  if (const json* best = find(summary, "best"); best != nullptr && best->is_object()) {
    record.best_name = text_in(*best, "name");
    record.best_value = number_in(*best, "value");
    record.best_epoch = count_in(*best, "epoch");
    record.best_mode = text_in(*best, "mode");
  }
  if (record.status == "running" && !is_folder_locked(run)) record.status = "killed";
  add_newest_records(run, record);
  return record;
}

}  // namespace kindling
