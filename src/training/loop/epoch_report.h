#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kindling/device/transfer_counts.h"
#include "kindling/loggers/logger.h"
#include "metrics/epoch_clock.h"
#include "training/state/batch_source.h"
#include "training/state/train_state.h"

namespace kindling {

// Turns the log, the clocks and the counts of an epoch into records, for loggers, callbacks and the model's
// board.
class EpochReport {
 public:
  // A step record every n steps; 0: none. `state`, `clock` and `group`
  // (nullptr: a single process) outlive the report. With several ranks the record of an epoch covers all of
  // them and is the same everywhere, times and counts aside; step records are those of rank 0, and only rank 0
  // calls the loggers.
  EpochReport(TrainState& state, std::vector<std::shared_ptr<Logger>> loggers, std::int64_t every_n_steps,
              EpochClock& clock, ProcessGroup* group);

  // A training begins.
  void start();
  // An epoch's training begins, or goes on after a stop: clocks and counts start at zero. `source` is where
  // its batches come from, nullptr for an own loop.
  void begin(BatchSource* source);
  void after_batch(std::int64_t num_samples) { num_samples_ += num_samples; }
  // After every step: asks for a copy of new rows when a record is due, and reports what has arrived. Never
  // waits.
  void after_step();
  // The training part of the epoch is over: copies the log to the host in bulk and reports the steps that are
  // left. The one place where the host waits for the device.
  void copy_log_to_host();

  // Reports all steps up to here, if any are reported; waits for the device.
  void report_pending();
  // The same, and sees to it that loggers have what they were told on disk.
  void report_all();
  // A saved training goes on where the state stands.
  void resume();

  // The record of a validation in the middle of the epoch, for the loggers; its time is none of the
  // training's.
  Record validation_record(const NamedValues& values) const;
  void leave_out(double seconds) { left_out_seconds_ += seconds; }

  // The record of the epoch, whose training has ended, with what its validation has found; then the log is
  // empty.
  Record close(const NamedValues& validation);
  void write(const Record& record) const;

  // The batches of a step.
  struct StepRows {
    RowTag first;
    std::int64_t num_batches;
  };
  // The first step on the host that NonfiniteGuard has marked with "stop"; nothing when there is none. After
  // log.move_to_host() it is the whole truth, which a save has to know.
  std::optional<StepRows> first_diverged() const;
  // Whether a step record or a preview has come upon such a row.
  bool has_met_divergence() const noexcept { return has_met_divergence_; }
  // Where the running epoch's batches come from, as begin() was told.
  const BatchSource* source() const noexcept { return source_; }
  // Puts what the model plots of a log whose rows are on the host, one a batch, on its board. A validation
  // stands at the share `at` of the epoch.
  void draw(const EpochLog& log, Module::Stage stage, std::int64_t num_batches, double at = 1) const;
  // The values of the latest row that has reached the host; see Trainer::preview().
  NamedValues preview();

  double seconds() const;  // since begin()
  double data_wait_seconds() const { return source_ == nullptr ? 0 : source_->wait_seconds(); }

 private:
  void begin_behind_all();
  using Clock = std::chrono::steady_clock;

  void put_shares(Record& record) const;
  double num_samples_of_all() const;
  void read_latest();
  void report_steps(std::int64_t rows);
  Record step_record(std::int64_t row, std::int64_t num_rows) const;

  TrainState& state_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::int64_t every_n_steps_;
  EpochClock& clock_;
  EpochClock::Times clock_start_{};
  ProcessGroup* group_;
  BatchSource* source_ = nullptr;
  std::int64_t num_reported_rows_ = 0, num_samples_ = 0;
  double train_seconds_ = 0, left_out_seconds_ = 0;
  bool has_met_divergence_ = false;
  NamedValues latest_;  // see preview()
  TransferCounts counts_at_start_;
  Clock::time_point start_ = Clock::now(), last_preview_{};
};

}  // namespace kindling
