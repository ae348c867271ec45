#include "runs/run_summary.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/folder.h"
#include "base/system.h"
#include "kindling/base/version.h"
#include "runs/run_files.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSummaryBytes = 1 << 20, kTailBytes = 1 << 13, kMaxTailBytes = 1 << 23;

Json json_of(const GitCommit& git) {
  Json json;
  if (!git.commit.empty()) json["commit"] = git.commit;
  if (!git.branch.empty()) json["branch"] = git.branch;
  return json;
}

Json json_of(const DataSummary& data) {
  Json json;
  if (!data.name.empty()) json["name"] = data.name;
  for (const auto& [key, samples] : {std::pair("train", data.train), {"val", data.val}})
    if (samples) json[key] = *samples;
  for (const auto& [name, samples] : data.more_val) json["val/" + name] = samples;
  if (!data.skipped.empty()) json["skipped"] = data.skipped.size();
  if (!data.class_names.empty()) json["class_names"] = data.class_names;
  if (!data.checksum.empty()) json["checksum"] = data.checksum;
  for (const DataFiles& files : data.files)
    json["files"].push_back(
        {{"path", files.path}, {"count", files.count}, {"bytes", files.bytes}, {"modified", files.modified}});
  return json;
}

Json json_of(const ValidationSummary& validation) {
  Json json{{"weights", validation.weights}, {"step", validation.step}, {"samples", validation.samples}};
  if (validation.ece) json["ece"] = *validation.ece;
  return json;
}

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

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

std::vector<std::string> changed_files(const std::vector<DataFiles>& before,
                                       const std::vector<DataFiles>& now) {
  const auto size_text = [](const DataFiles& files) {
    return (files.count == 1 ? "" : std::to_string(files.count) + " files of ") +
           std::to_string(files.bytes) + " bytes";
  };
  std::vector<std::string> changed;
  for (const DataFiles& then : before) {
    const auto found = std::ranges::find(now, then.path, &DataFiles::path);
    if (found == now.end()) continue;  // the config names another place
    if (found->count != then.count || found->bytes != then.bytes)
      changed.push_back(then.path + " had " + size_text(then) + " and now has " + size_text(*found));
    else if (found->modified != then.modified)
      changed.push_back(then.path + " was last modified at " + then.modified + " and now at " +
                        found->modified);
  }
  return changed;
}

std::string class_difference(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  if (before.empty() || now.empty() || before == now) return {};
  const auto [then, current] = std::ranges::mismatch(before, now);
  const std::string number = "class " + std::to_string(then - before.begin());
  if (then == before.end()) return number + " was not there before and is '" + *current + "' now";
  if (current == now.end()) return number + " was '" + *then + "' before and is not there now";
  return number + " was '" + *then + "' before and is '" + *current + "' now";
}

std::string difference_of(const DataSummary& before, const DataSummary& now) {
  if (std::string classes = class_difference(before.class_names, now.class_names); !classes.empty())
    return classes;
  const auto counts = [](std::int64_t then, std::int64_t current, const std::string& of) {
    return std::to_string(then) + " " + of + " before and " + std::to_string(current) + " now";
  };
  for (const auto& [kind, then, current] :
       {std::tuple("training samples", before.train, now.train), {"validation samples", before.val, now.val}})
    if (then && current && *then != *current) return counts(*then, *current, kind);
  for (const auto& [name, then] : before.more_val)
    if (const auto current = now.more_val.find(name);
        current != now.more_val.end() && current->second != then)
      return counts(then, current->second, "samples of the validation set '" + name + "'");
  const bool has_sums = !before.checksum.empty() && !now.checksum.empty();
  const bool is_same = before.checksum == now.checksum || before.checksum == now.float32_checksum;
  return has_sums && !is_same ? "the same number of samples with other values" : "";
}

std::string run_json(const RunSummary& summary, const RunStart& start) {
  Json json{
      {"status", summary.status},
      {"seed", summary.seed},
      {"started", utc_text(start.date)},
      {"written", utc_text(std::chrono::system_clock::now())},
      {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start.time).count()},
      {"global_step", summary.global_step},
      {"device", summary.device},
      {"device_note", summary.device_note},
      {"processes", summary.num_processes},
      {"host", host_name()},
      {"cpu", summary.cpu_model},
      {"threads", summary.num_threads},
      {"fast_mkl", summary.fast_mkl},
      {"float32_matmul_precision", summary.float32_matmul_precision},
      {"kindling", version()},
      {"libtorch", summary.libtorch_version},
      {"process", static_cast<std::int64_t>(getpid())},
  };
  if (!summary.slurm_job.empty()) json["slurm_job"] = summary.slurm_job;
  if (!summary.slurm_array_task.empty()) json["slurm_array_task"] = summary.slurm_array_task;
  if (const Json git = json_of(summary.git); !git.is_null()) json["git"] = git;
  if (const Json data = json_of(summary.data); !data.is_null()) json["data"] = data;
  if (!summary.reason.empty()) json["reason"] = summary.reason;
  if (!summary.best_name.empty())
    json["best"] = {{"name", summary.best_name},
                    {"value", summary.best_value},
                    {"epoch", summary.best_epoch},
                    {"mode", summary.higher_is_better ? "max" : "min"}};
  if (summary.resumed_from_step) json["resumed_from_step"] = *summary.resumed_from_step;
  if (summary.parent) json["parent"] = {{"run", summary.parent->run}, {"step", summary.parent->step}};
  if (!summary.last_checkpoint.empty()) json["checkpoint"]["last"] = summary.last_checkpoint;
  if (!summary.best_checkpoint.empty()) {
    json["checkpoint"]["best"] = summary.best_checkpoint;
    json["checkpoint"]["best_step"] = summary.best_checkpoint_step;
    if (summary.best_checkpoint_value) json["checkpoint"]["best_value"] = *summary.best_checkpoint_value;
  }
  if (summary.validation) json["validation_report"] = json_of(*summary.validation);
  json["metrics"] = summary.metrics;
  // Names may contain arbitrary bytes: invalid UTF-8 is replaced rather than refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string run_text(const fs::path& run, const char* key) {
  std::ifstream stream(run / "run.json");
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value(key, "") : "";
}

std::optional<std::int64_t> run_number(const fs::path& run, const char* key) {
  std::ifstream stream(run / "run.json");
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_number_integer()) return std::nullopt;
  return json.at(key).get<std::int64_t>();
}

std::optional<RunParent> run_parent(const fs::path& run) {
  std::ifstream stream(run / "run.json");
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("parent")) return std::nullopt;
  const auto& parent = json["parent"];
  if (!parent.is_object() || !parent.contains("run") || !parent["run"].is_string() ||
      !parent.contains("step") || !parent["step"].is_number_integer())
    return std::nullopt;
  return RunParent{.run = parent["run"], .step = parent["step"]};
}

DataSummary run_data(const fs::path& run) {
  std::ifstream stream(run / "run.json");
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  DataSummary data;
  if (!json.is_object() || !json.contains("data") || !json["data"].is_object()) return data;
  for (const auto& [key, value] : json["data"].items()) {
    if (key == "name" && value.is_string()) data.name = value;
    if (key == "checksum" && value.is_string()) data.checksum = value;
    if (key == "train" && value.is_number_integer()) data.train = value.get<std::int64_t>();
    if (key == "val" && value.is_number_integer()) data.val = value.get<std::int64_t>();
    if (key.starts_with("val/") && value.is_number_integer()) data.more_val[key.substr(4)] = value;
    if (key == "files" && value.is_array())
      for (const Json& one : value)
        if (one.is_object() && one.value("path", Json()).is_string() &&
            one.value("modified", Json()).is_string())
          data.files.push_back({.path = one["path"],
                                .count = one.value("count", std::int64_t{0}),
                                .bytes = one.value("bytes", std::int64_t{0}),
                                .modified = one["modified"]});
    if (key == "class_names" && value.is_array())
      for (const Json& name : value)
        if (name.is_string()) data.class_names.push_back(name);
  }
  return data;
}

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
