#include "runs/sweep_results.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/folder.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "loggers/run_metrics.h"
#include "runs/run_files.h"
#include "runs/run_folder.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMedianFile = "median_stops.json";
constexpr const char* kEndFile = "last_end.json";  // in the directory of a run

// The result is final: running it again would change nothing.
bool has_ended(const RunRecord& record) {
  return record.status == "finished" || record.status == "diverged" ||
         (record.status == "stopped" && (record.reason == "time" || record.reason == "early_stop"));
}

// One line of the output without control characters.
std::string line_of(const std::string& text, bool is_first) {
  std::string line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view one = std::string_view(text).substr(begin, end - begin);
    if (one.find_first_not_of(" \t\r") != std::string_view::npos) line = one;
    if (is_first && !line.empty()) break;
    begin = end + 1;
  }
  return shortened(one_line(line), 300);
}

}  // namespace

bool is_worse_than_median(double value, std::vector<double> others, bool higher_is_better) {
  if (others.empty()) return false;
  const auto rank = [&](double one) {  // larger is better
    if (std::isnan(one)) return -std::numeric_limits<double>::infinity();
    return higher_is_better ? one : -one;
  };
  for (double& other : others) other = rank(other);
  std::ranges::sort(others);
  const std::size_t middle = others.size() / 2;
  const double upper = others[middle], lower = others[(others.size() - 1) / 2];
  return rank(value) < (upper == lower ? upper : lower + (upper - lower) / 2);
}

std::int64_t median_stop_epoch(const EpochValues& run, const std::vector<const EpochValues*>& others,
                               const MedianStopping& options, bool higher_is_better) {
  for (const auto& [epoch, own] : run) {
    if (epoch < options.min_epochs) continue;
    std::vector<double> values;
    for (const EpochValues* other : others)
      if (const auto found = other->find(epoch); found != other->end()) values.push_back(found->second.value);
    if (static_cast<std::int64_t>(values.size()) < options.min_runs) continue;
    if (is_worse_than_median(own.value, std::move(values), higher_is_better)) return epoch;
  }
  return 0;
}

const EpochValues& EpochReader::update() {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file_, error);
  if (error) return values_;
  if (size < read_bytes_) {
    read_bytes_ = 0;
    partial_.clear();
    values_.clear();
  }
  if (size == read_bytes_) return values_;
  std::ifstream stream(file_, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(read_bytes_));
  for (char c = 0; read_bytes_ < size && stream.get(c); ++read_bytes_) {
    if (c != '\n') {
      partial_ += c;
      continue;
    }
    take(partial_);
    partial_.clear();
  }
  return values_;
}

void EpochReader::take(const std::string& line) {
  if (!line.starts_with("{\"epoch\": ")) return;  // the many lines of steps need not be parsed
  const auto record = record_of_line(line);
  const double* const value = record ? record->find(name_) : nullptr;
  if (value != nullptr) values_[record->epoch] = {.value = *value, .steps = record->global_step};
}

SweepResults::SweepResults(const SweepPlan& plan, fs::path folder)
    : plan_(plan),
      folder_(std::move(folder)),
      rows_(plan.runs.size()),
      known_attempts_(plan.runs.size()),
      is_final_(plan.runs.size()) {
  load_median_stops();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    known_attempts_[i] = noted_end(i).attempt;
    read_row(i);
  }
}

// A process of the sweep notes how each of its runs ends. One that was killed leaves the records of its runs.
void SweepResults::read_row(std::size_t run) {
  const std::string& name = plan_.runs[run].name;
  const auto folder = newest_run(folder_, name);
  const auto record = folder ? read_run_record(*folder) : std::nullopt;
  const NotedEnd end = noted_end(run);
  SweepRow& row = rows_[run];
  row = {};
  is_final_[run] = median_stops_.contains(name) || (record && has_ended(*record));
  if (is_final_[run])
    row.status = median_stops_.contains(name) ? "median" : record->status;
  else if (end.attempt > known_attempts_[run] && end.status != "interrupted")
    row = {.status = end.status, .note = end.note};
  else if (record)
    row.status = "interrupted";
  if (record && row.status != "refused") add_numbers(run);
}

void SweepResults::refresh() {
  load_median_stops();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (is_final_[i] || own_.contains(i)) continue;
    read_row(i);
    if (!is_final_[i] && is_folder_locked(folder_of(i))) rows_[i].status = "running";
  }
}

void SweepResults::refresh(std::size_t run) {
  load_median_stops();
  read_row(run);
}

// A damaged file means that the run is tried again.
SweepResults::NotedEnd SweepResults::noted_end(std::size_t run) const {
  const auto text = small_file(folder_of(run) / kEndFile, std::size_t{1} << 16);
  const auto json = nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  try {
    return {.attempt = json.at("attempt"), .status = json.at("status"), .note = json.at("note")};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

void SweepResults::write_end(std::size_t run) const try {
  const nlohmann::ordered_json json{
      {"attempt", noted_end(run).attempt + 1}, {"status", rows_[run].status}, {"note", rows_[run].note}};
  write_file_atomically(folder_of(run) / kEndFile,
                        json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
} catch (const std::exception& error) {
  log_warning(std::string("other processes of the sweep may try a run again: ") + error.what());
}

// A damaged file means that the decisions are made again.
void SweepResults::load_median_stops() {
  const auto text = small_file(folder_ / kMedianFile, std::size_t{1} << 20);
  const auto json = nlohmann::json::parse(text.value_or("{}"), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  for (const auto& [name, epoch] : json.items())
    if (epoch.is_number_integer()) median_stops_[name] = epoch.get<std::int64_t>();
}

bool SweepResults::is_to_run(std::size_t run) const {
  const std::string& status = rows_[run].status;
  return status == "pending" || status == "interrupted";
}

fs::path SweepResults::output_of(std::size_t run) const { return folder_of(run) / "output.txt"; }

void SweepResults::add_numbers(std::size_t run) {
  const auto folder = newest_run(folder_, plan_.runs[run].name);
  const auto record = folder ? read_run_record(*folder) : std::nullopt;
  if (record) add_record(rows_[run], *record);
  const auto stop = median_stops_.find(plan_.runs[run].name);
  if (stop == median_stops_.end()) return;
  // The run may have trained a little longer, depending on when it was asked to end.
  SweepRow& row = rows_[run];
  row.monitor = plan_.monitor;
  row.best.reset();
  row.epochs = stop->second;
  for (const auto& [epoch, value] : values_of(run)) {
    if (epoch > stop->second) break;
    row.steps = value.steps;
    if (std::isnan(value.value)) continue;
    if (row.best && !(higher_is_better() ? value.value > *row.best : value.value < *row.best)) continue;
    row.best = value.value;
    row.best_epoch = epoch;
  }
}

// The run cuts its records back to the checkpoint that it resumes from.
void SweepResults::note_start(std::size_t run) {
  rows_[run].status = "running";
  readers_.erase(run);
  own_.insert(run);
}

void SweepResults::note_end(std::size_t run, const SweepRunEnd& end) {
  SweepRow& row = rows_[run];
  row = {};
  readers_.erase(run);
  own_.erase(run);
  const auto folder = newest_run(folder_, plan_.runs[run].name);
  const auto record = folder ? read_run_record(*folder) : std::nullopt;
  const std::string status = record ? record->status : "";
  is_final_[run] = median_stops_.contains(plan_.runs[run].name) || (record && has_ended(*record));
  if (median_stops_.contains(plan_.runs[run].name))
    row.status = "median";
  else if (end.exit_code == 0)
    row.status = status.empty() ? "failed" : status;
  else if (end.has_diverged)
    row.status = "diverged";
  else if (end.was_refused)
    row.status = "refused";
  else if (end.was_asked && end.exit_code > 128)
    row.status = "interrupted";
  else if (end.exit_code > 128 && status == "stopped")
    row.status = "stopped";
  else
    row.status = "failed";
  if (row.status == "refused")
    row.note = error_of(run, true);
  else
    add_numbers(run);
  if (row.status == "failed") {
    row.note = "exit code " + std::to_string(end.exit_code);
    if (const std::string error = error_of(run, false); !error.empty()) row.note += ": " + error;
  }
  if (!is_final_[run]) write_end(run);
}

std::string SweepResults::error_of(std::size_t run, bool is_first_line) const {
  constexpr std::size_t kMaxBytes = 1 << 16;
  return line_of(is_first_line ? small_file(output_of(run), kMaxBytes).value_or("")
                               : end_of_file(output_of(run), kMaxBytes),
                 is_first_line);
}

// Only a running run can get more values, or another directory after a failed start. The files of the others
// are read once, because a sweep may have thousands of them.
const EpochValues& SweepResults::values_of(std::size_t run) {
  const auto known = readers_.find(run);
  if (known != readers_.end() && rows_[run].status != "running") return known->second.values();
  const auto folder = newest_run(folder_, plan_.runs[run].name);
  static const EpochValues kNone;
  if (!folder) return kNone;
  const fs::path file = *folder / "metrics.jsonl";
  if (known != readers_.end() && known->second.file() == file) return known->second.update();
  return readers_.insert_or_assign(run, EpochReader(file, plan_.monitor)).first->second.update();
}

bool SweepResults::stop_by_median(std::size_t run) {
  if (!plan_.median.is_on || median_stops_.contains(plan_.runs[run].name)) return false;
  const EpochValues own = values_of(run);
  std::vector<const EpochValues*> others;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (i != run && rows_[i].status != "pending") others.push_back(&values_of(i));
  const std::int64_t epoch = median_stop_epoch(own, others, plan_.median, higher_is_better());
  if (epoch == 0) return false;
  const FolderLock lock = lock_folder_within(folder_, kSweepLockTimeout_ms);
  load_median_stops();  // of other processes
  median_stops_[plan_.runs[run].name] = epoch;
  write_file_atomically(folder_ / kMedianFile, nlohmann::json(median_stops_).dump(2) + "\n");
  return true;
}

void SweepResults::write_tables() const {
  write_file_atomically(folder_ / "table.csv", sweep_csv(plan_, rows_));
  write_file_atomically(folder_ / "table.json", sweep_json(plan_, rows_));
}

void SweepResults::write_report() const {
  std::vector<fs::path> records;
  for (const SweepRun& run : plan_.runs)
    records.push_back(newest_run(folder_, run.name).value_or(fs::path()) / "metrics.jsonl");
  write_file_atomically(folder_ / "report.html",
                        sweep_page(plan_, rows_, folder_.filename().string(), records));
}

}  // namespace kindling
