#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kindling/device/transfer_counts.h"
#include "kindling/loggers/logger.h"
#include "metrics/epoch_clock.h"
#include "training/state/batch_source.h"
#include "training/state/train_state.h"

namespace kindling {

// Logs warnings about the steps of an epoch that were skipped, and those whose loss was a spike.
void warn_of_steps(const Record& record, const std::set<std::int64_t>& spikes,
                   const std::optional<SpikeOptions>& on_spike);

// Turns the log, the clocks and the counts of an epoch into records for loggers, callbacks and the model's
// board.
class EpochReport {
 public:
  // A step record every n steps; 0: none. `state`, `clock` and `group` (nullptr: a single process) outlive
  // the report. With several ranks the record of an epoch covers all of them and is the same everywhere,
  // times and counts aside; step records are those of rank 0, and only rank 0 calls the loggers.
  EpochReport(TrainState& state, std::vector<std::shared_ptr<Logger>> loggers, std::int64_t every_n_steps,
              EpochClock& clock, ProcessGroup* group);

  // Call it when a run starts.
  void start();
  // Call it when an epoch's training starts, or resumes after a stop: clocks and counts start at zero.
  // `source` provides its batches; nullptr: a custom training loop.
  void begin(BatchSource* source);
  void after_batch(std::int64_t num_samples) { num_samples_ += num_samples; }
  // Call it after every step: requests a copy of new rows if a record is due, and reports rows that have
  // arrived. Never waits.
  void after_step();
  // Call it after the training part of the epoch: copies the log to the host in bulk and reports the
  // remaining steps. The only place where the host waits for the device.
  void copy_log_to_host();

  // Reports all steps so far, if step records are on; waits for the device.
  void report_pending();
  // Like report_pending(), and makes the loggers' records durable.
  void report_all();
  // Call it after a saved run has been loaded: continues from the state's progress.
  void resume();

  // Returns the name under which records have a value of the validation: "val_acc" for "acc" if the training
  // logs it, too.
  std::string validation_name(const std::string& name) const;
  // Returns the record of a validation within the epoch, for the loggers. leave_out() excludes its time from
  // that of the training.
  Record validation_record(const NamedValues& values) const;
  void leave_out(double seconds) { left_out_seconds_ += seconds; }

  // Returns the record of the epoch after its training part, with the values of its validation, and empties
  // the log.
  Record close(const NamedValues& validation);
  void write(const Record& record) const;

  // The batches of a step.
  struct StepRows {
    RowTag first;
    std::int64_t num_batches;
  };
  // Returns the first step on the host that NonfiniteGuard has marked with "stop", if any. Complete only
  // after log.move_to_host(), which a save therefore calls first.
  std::optional<StepRows> first_diverged() const;
  // Returns the first step on the host since the run started or resumed whose loss was a spike, if any.
  std::optional<StepRows> first_spike();
  // Returns the steps in the log, on the host, whose loss was a spike.
  std::set<std::int64_t> spike_steps() const;
  // True if a step record or a preview has found such a row.
  bool has_met_divergence() const noexcept { return has_met_divergence_; }
  // The source passed to begin().
  const BatchSource* source() const noexcept { return source_; }
  // Draws the plotted values of a log, whose rows (one per batch) are on the host, on the model's board. A
  // validation is drawn at the fraction `at` of the epoch.
  void draw(const EpochLog& log, Module::Stage stage, std::int64_t num_batches, double at = 1) const;
  // Returns the values of the latest row on the host; see Trainer::preview().
  NamedValues preview();
  // Returns the loss of the latest row after a copy of the log, NaN if that has none; nothing without rows.
  std::optional<double> latest_loss();

  double seconds() const;  // since begin()
  double data_wait_seconds() const { return source_ == nullptr ? 0 : source_->wait_seconds(); }

 private:
  void begin_after_all_rows();
  StepRows step_until(std::int64_t row) const;
  using Clock = std::chrono::steady_clock;

  void put_shares(Record& record) const;
  std::vector<double> gather_speed() const;
  void read_latest();
  void report_steps(std::int64_t rows);
  Record step_record(std::int64_t row, std::int64_t num_rows) const;
  void warn_of_low_scale();

  TrainState& state_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::int64_t every_n_steps_;
  EpochClock& clock_;
  EpochClock::Times clock_start_{};
  EpochClock::Clock::duration exchange_start_{};
  ProcessGroup* group_;
  BatchSource* source_ = nullptr;
  std::int64_t num_reported_rows_ = 0, num_samples_ = 0, num_steps_ = 0;
  double train_seconds_ = 0, left_out_seconds_ = 0, exchange_seconds_ = 0;
  bool has_met_divergence_ = false;
  std::optional<StepRows> first_spike_;
  std::int64_t num_rows_tested_ = 0;  // for spikes
  // See warn_of_low_scale().
  std::int64_t num_watched_rows_ = 0;
  double lowest_quiet_scale_ = 1;
  NamedValues latest_;  // see preview()
  TransferCounts counts_at_start_;
  Clock::time_point start_ = Clock::now(), last_preview_{};
};

}  // namespace kindling
