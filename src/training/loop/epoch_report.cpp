#include "training/loop/epoch_report.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>
#include <string>

#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "metrics/global_means.h"
#include "training/step/nonfinite_guard.h"

namespace kindling {
namespace {

constexpr double kPreviewInterval_s = 1;
// The loss scale falls by this factor from one warning to the next.
constexpr double kScaleBetweenWarnings = 0x1p-8;

// Spikes that were skipped are reported separately.
void warn_of_skipped_steps(const Record& record, double num_spikes) {
  const double* const steps = record.find("skipped_steps");
  if (steps == nullptr || *steps <= num_spikes) return;
  log_warning("epoch " + std::to_string(record.epoch) + ": " + number_text(*steps - num_spikes) +
              " steps were skipped because their loss or gradients were not finite, or no label counted");
}

// Returns "steps 3, 17 and 4 more".
std::string text_of_steps(const std::set<std::int64_t>& steps) {
  constexpr std::size_t kMostNamed = 8;
  std::string text = steps.size() == 1 ? "step " : "steps ";
  std::size_t num_named = 0;
  for (auto step = steps.begin(); step != steps.end() && num_named < kMostNamed; ++step)
    text += (num_named++ == 0 ? "" : ", ") + std::to_string(*step);
  return steps.size() == num_named ? text
                                   : text + " and " + std::to_string(steps.size() - num_named) + " more";
}

void warn_of_spikes(std::int64_t epoch, const std::set<std::int64_t>& steps, const SpikeOptions& options) {
  if (steps.empty()) return;
  const bool is_one = steps.size() == 1;
  log_warning("epoch " + std::to_string(epoch) + ": the loss had a spike, more than " +
              number_text(options.factor) + " spreads above the median of the latest losses, in " +
              text_of_steps(steps) + "; " + (is_one ? "its update was " : "their updates were ") +
              (options.action == "skip" ? "skipped" : "made (on_spike.action = \"warn\")"));
}

void put(Record& record, std::string_view name, double value) {
  for (auto& [known, old] : record.values)
    if (known == name) {
      old = value;
      return;
    }
  record.values.emplace_back(name, value);
}

void put_counts(Record& record, const TransferCounts& counts) {
  for (const auto& [name, count] : TransferCounts::kNames)
    put(record, name, static_cast<double>(counts.*count));
}

}  // namespace

void warn_of_steps(const Record& record, const std::set<std::int64_t>& spikes,
                   const std::optional<SpikeOptions>& on_spike) {
  const bool are_skipped = on_spike && on_spike->action == "skip";
  warn_of_skipped_steps(record, are_skipped ? static_cast<double>(spikes.size()) : 0);
  if (on_spike) warn_of_spikes(record.epoch, spikes, *on_spike);
}

EpochReport::EpochReport(TrainState& state, std::vector<std::shared_ptr<Logger>> loggers,
                         std::int64_t every_n_steps, EpochClock& clock, ProcessGroup* group)
    : state_(state), every_n_steps_(every_n_steps), clock_(clock), group_(group) {
  if (group_ == nullptr || group_->rank() == 0) loggers_ = std::move(loggers);
}

// Returns the number of samples of all ranks and, with several ranks, the seconds per step of each, from the
// clocks of their hosts. One exchange between ranks, in host memory.
std::vector<double> EpochReport::gather_speed() const {
  const auto samples = static_cast<double>(num_samples_);
  if (group_ == nullptr) return {samples};
  std::vector<double> numbers(1 + static_cast<std::size_t>(group_->size()));
  numbers[0] = samples;
  if (num_steps_ > 0)
    numbers[1 + static_cast<std::size_t>(group_->rank())] =
        (train_seconds_ - exchange_seconds_) / static_cast<double>(num_steps_);
  group_->all_reduce(at::from_blob(numbers.data(), {static_cast<std::int64_t>(numbers.size())}, at::kDouble));
  return numbers;
}

void EpochReport::start() {
  latest_.clear();
  has_met_divergence_ = false;
  lowest_quiet_scale_ = 1;
  begin_after_all_rows();
}

// Starts after all rows of the log, which have been reported.
void EpochReport::begin_after_all_rows() {
  num_reported_rows_ = num_watched_rows_ = num_rows_tested_ = state_.log.num_rows();
  first_spike_.reset();
  begin(nullptr);
}

void EpochReport::begin(BatchSource* source) {
  source_ = source;
  if (source_ != nullptr) source_->restart_clock();
  num_samples_ = 0;
  num_steps_ = 0;
  left_out_seconds_ = 0;
  counts_at_start_ = transfer_counts();
  start_ = Clock::now();
  clock_start_ = clock_.spent();
  exchange_start_ = clock_.exchange();
}

double EpochReport::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void EpochReport::after_step() {
  ++num_steps_;
  if (every_n_steps_ == 0 || state_.progress.global_step % every_n_steps_ != 0) return;
  const ActivityScope scope(&clock_, Activity::log);
  state_.log.start_preview();
  report_steps(state_.log.rows_on_host());
  has_met_divergence_ = first_diverged().has_value();
  warn_of_low_scale();
}

void EpochReport::copy_log_to_host() {
  const ActivityScope scope(&clock_, Activity::log);
  EpochLog& log = state_.log;
  if (log.has_marks())  // logged after the last step
    log.append({.global_step = state_.progress.global_step + 1,
                .batch = state_.progress.batch,
                .lr = log.tag(log.num_rows() - 1).lr,
                .weight = log.tag(log.num_rows() - 1).weight});
  log.move_to_host();
  warn_of_low_scale();
  if (every_n_steps_ > 0) report_steps(log.num_rows());
  train_seconds_ = seconds() - left_out_seconds_;
  exchange_seconds_ = std::chrono::duration<double>(clock_.exchange() - exchange_start_).count();
}

void EpochReport::report_pending() {
  if (every_n_steps_ == 0) return;
  state_.log.move_to_host();
  report_steps(state_.log.num_rows());
}

void EpochReport::report_all() {
  state_.log.move_to_host();
  warn_of_low_scale();
  report_pending();
  for (const auto& logger : loggers_) logger->sync();
}

void EpochReport::resume() {
  for (const auto& logger : loggers_) logger->resume_at(state_.progress);
  begin_after_all_rows();
}

void EpochReport::report_steps(std::int64_t rows) {
  EpochLog& log = state_.log;
  const std::size_t loss = log.column("train_loss");
  while (num_reported_rows_ < rows) {
    const std::int64_t row = num_reported_rows_, step = log.step(row);
    if (step % every_n_steps_ != 0) {
      ++num_reported_rows_;
      continue;
    }
    const std::int64_t num_rows = log.rows_of_step(row);
    if (row + num_rows > rows || step > state_.progress.global_step) return;  // the step is not complete
    num_reported_rows_ += num_rows;  // reports each step once, even if a logger throws
    if (log.value(row, loss, num_rows)) write(step_record(row, num_rows));
  }
}

Record EpochReport::step_record(std::int64_t row, std::int64_t num_rows) const {
  const RowTag tag = state_.log.tag(row + num_rows - 1);  // the last row has the learning rate of the update
  Record record{
      .kind = Record::Kind::step, .global_step = tag.global_step, .epoch = state_.progress.epoch + 1};
  const auto& columns = state_.log.columns();
  NamedValues own;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto value = state_.log.value(row, i, num_rows);
    if (!value || columns[i].kind == EpochLog::Kind::internal) continue;
    const bool is_trainers = i == 0 || columns[i].kind == EpochLog::Kind::step_only;
    (is_trainers ? record.values : own).emplace_back(columns[i].name, *value);
  }
  for (auto& [name, value] : record.values)
    if (name == "train_loss") name = "train_loss_step";
  record.values.insert(record.values.begin() + 1, {"lr", tag.lr});
  for (auto& [name, value] : own) record.values.emplace_back(name + "_step", value);
  return record;
}

std::string EpochReport::validation_name(const std::string& name) const {
  const bool is_of_both = state_.log.find_column(name, EpochLog::Kind::mean) ||
                          state_.log.find_column(name, EpochLog::Kind::metric);
  return is_of_both ? "val_" + name : name;
}

Record EpochReport::validation_record(const NamedValues& values) const {
  Record record{.kind = Record::Kind::validation,
                .global_step = state_.progress.global_step,
                .epoch = state_.progress.epoch + 1};
  for (const auto& [name, value] : values) put(record, validation_name(name), value);
  return record;
}

Record EpochReport::close(const NamedValues& validation) {
  const auto skipped = state_.log.find_column(kSkippedColumn, EpochLog::Kind::internal);
  Record record{.kind = Record::Kind::epoch,
                .global_step = state_.progress.global_step,
                .epoch = state_.progress.epoch + 1,
                .values = global_means(state_.log, group_, skipped)};
  for (const auto& [name, value] : validation)  // a name logged in both gets two means
    put(record, record.find(name) == nullptr ? name : "val_" + name, value);
  put(record, "lr", state_.log.tag(state_.log.num_rows() - 1).lr);
  const auto empty = state_.log.find_column(kEmptyColumn, EpochLog::Kind::internal);
  if (const auto steps = state_.log.marked_steps(skipped).size() + state_.log.marked_steps(empty).size();
      steps > 0)
    put(record, "skipped_steps", static_cast<double>(steps));
  if (const std::size_t spikes = spike_steps().size(); spikes > 0)
    put(record, "spikes", static_cast<double>(spikes));
  if (const std::int64_t batches = state_.passed.count_in(state_.progress.epoch); batches > 0)
    put(record, "passed_batches", static_cast<double>(batches));
  if (const std::int64_t samples = source_ == nullptr ? 0 : source_->num_skipped_samples(); samples > 0)
    put(record, "skipped_samples", static_cast<double>(samples));
  put_shares(record);
  put(record, "epoch_time_s", seconds());
  const std::vector<double> speed = gather_speed();
  put(record, "samples_per_s", speed[0] / train_seconds_);
  put(record, "data_wait_share", data_wait_seconds() / train_seconds_);
  put_counts(record, transfer_counts() - counts_at_start_);
  for (std::size_t rank = 0; rank + 1 < speed.size(); ++rank)
    if (speed[rank + 1] > 0) put(record, "step_time_s/rank" + std::to_string(rank), speed[rank + 1]);
  state_.digest.add_rows(state_.log);
  record.digest = state_.digest.number();
  read_latest();
  state_.log.clear();
  state_.digest.end_epoch();
  num_reported_rows_ = num_watched_rows_ = num_rows_tested_ = 0;
  return record;
}

void EpochReport::put_shares(Record& record) const {
  if (!clock_.is_running()) return;
  const auto shares = clock_.fractions_since(clock_start_);
  for (std::size_t i = 0; i < shares.size(); ++i)
    put(record, std::string("time_share/") + kActivityNames[i], shares[i]);
}

void EpochReport::write(const Record& record) const {
  for (const auto& logger : loggers_) logger->write(record);
}

// A scale below 1 means that gradients overflow float16 although their loss is not multiplied any more.
void EpochReport::warn_of_low_scale() {
  EpochLog& log = state_.log;
  const auto column = log.find_column(kLossScaleColumn, EpochLog::Kind::internal);
  if (!column) return;
  for (const std::int64_t rows = log.rows_on_host(); num_watched_rows_ < rows; ++num_watched_rows_) {
    const auto scale = log.value(num_watched_rows_, *column);
    if (scale && *scale >= 1) lowest_quiet_scale_ = 1;
    if (!scale || *scale >= lowest_quiet_scale_) continue;
    lowest_quiet_scale_ = *scale * kScaleBetweenWarnings;
    log_warning("step " + std::to_string(log.step(num_watched_rows_)) +
                ": precision = \"16-mixed\" has lowered the loss scale to " + number_text(*scale) +
                " (the lower limit is " + number_text(GradScaler::kLowestScale) +
                "), because gradients keep overflowing float16, and skips such steps; check the loss for "
                "infinite gradients, lower the learning rate, or use precision = \"bf16-mixed\"");
  }
}

// Once a step is marked, all later ones are: the last row shows whether there is any mark.
std::optional<EpochReport::StepRows> EpochReport::first_diverged() const {
  EpochLog& log = state_.log;
  const auto column = log.find_column(kDivergedColumn, EpochLog::Kind::internal);
  if (!column) return std::nullopt;
  std::int64_t first = log.rows_on_host();
  for (std::int64_t row = first - 1; row >= 0 && log.value(row, *column).value_or(1) != 0; --row)
    if (log.value(row, *column)) first = row;  // a row logged after the last step has none
  if (first == log.rows_on_host()) return std::nullopt;
  return step_until(first);
}

// Returns the step whose last row this is.
EpochReport::StepRows EpochReport::step_until(std::int64_t row) const {
  const EpochLog& log = state_.log;
  std::int64_t first = row;
  while (first > 0 && log.step(first - 1) == log.step(row)) --first;
  return {.first = log.tag(first), .num_batches = row + 1 - first};
}

std::optional<EpochReport::StepRows> EpochReport::first_spike() {
  EpochLog& log = state_.log;
  const auto column = log.find_column(kSpikeColumn, EpochLog::Kind::internal);
  if (!column) return std::nullopt;
  for (const std::int64_t rows = log.rows_on_host(); !first_spike_ && num_rows_tested_ < rows;
       ++num_rows_tested_)
    if (log.value(num_rows_tested_, *column).value_or(0) != 0) first_spike_ = step_until(num_rows_tested_);
  return first_spike_;
}

std::set<std::int64_t> EpochReport::spike_steps() const {
  return state_.log.marked_steps(state_.log.find_column(kSpikeColumn, EpochLog::Kind::internal));
}

void EpochReport::draw(const EpochLog& log, Module::Stage stage, std::int64_t num_batches, double at) const {
  Module& model = *state_.model;
  const bool is_train = stage == Module::Stage::train;
  const std::int64_t per_epoch = is_train ? model.plot_train_per_epoch : model.plot_valid_per_epoch;
  if (num_batches == 0) num_batches = log.num_rows();
  if (per_epoch < 1 || num_batches == 0) return;
  const auto epoch = static_cast<double>(state_.progress.epoch);
  for (std::size_t column = 0; column < log.columns().size(); ++column) {
    const std::string& name = log.columns()[column].name;
    if (!name.starts_with(is_train ? "train_" : "val_") || !model.is_plotted(name)) continue;
    for (std::int64_t row = 0; row < log.num_rows(); ++row)
      if (const auto value = log.value(row, column)) {
        const double share = is_train ? static_cast<double>(row) / static_cast<double>(num_batches) : at;
        model.board().draw(epoch + share, *value, name, std::max<std::int64_t>(num_batches / per_epoch, 1));
      }
  }
}

NamedValues EpochReport::preview() {
  EpochLog& log = state_.log;
  const auto now = Clock::now();
  if (std::chrono::duration<double>(now - last_preview_).count() >= kPreviewInterval_s) {
    log.start_preview();
    last_preview_ = now;
  }
  read_latest();
  has_met_divergence_ = first_diverged().has_value();
  warn_of_low_scale();
  return latest_;
}

std::optional<double> EpochReport::latest_loss() {
  EpochLog& log = state_.log;
  log.move_to_host();
  const std::int64_t rows = log.num_rows();
  if (rows == 0) return std::nullopt;
  return log.value(rows - 1, log.column("train_loss")).value_or(std::numeric_limits<double>::quiet_NaN());
}

// Keeps the former values if there are no newer ones.
void EpochReport::read_latest() {
  EpochLog& log = state_.log;
  const std::int64_t rows = log.rows_on_host();
  if (rows > 0) latest_.clear();
  for (std::size_t column = 0; column < log.columns().size() && rows > 0; ++column)
    if (const auto value = log.value(rows - 1, column);
        value && log.columns()[column].kind != EpochLog::Kind::internal)
      latest_.emplace_back(log.columns()[column].name, *value);
}

}  // namespace kindling
