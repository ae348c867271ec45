#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kindling/device/transfer_counts.h"
#include "kindling/loggers/logger.h"
#include "training/batch_source.h"
#include "training/train_state.h"

namespace kindling {

// Turns the log, the clocks and the counts of an epoch into records, for loggers, callbacks and the model's
// board.
class EpochReport {
 public:
  // A step record every n steps; 0: none. `state` outlives the report.
  EpochReport(TrainState& state, std::vector<std::shared_ptr<Logger>> loggers, std::int64_t every_n_steps);

  // A training begins.
  void start();
  // An epoch's training begins, or goes on after a stop: clocks and counts start at zero. `source` is where
  // its batches come from, nullptr for an own loop.
  void begin(BatchSource* source);
  // After every step: asks for a copy of new rows when a record is due, and reports what has arrived. Never
  // waits.
  void after_step(std::int64_t num_samples);
  // The one place where a training's numbers come to the host: reports the steps that are left.
  void end_training();

  // Reports all steps up to here, and sees to it that loggers have what they were told on disk.
  void report_all();
  // A saved training goes on where the state stands.
  void resume();

  // The record of the epoch, whose training has ended, with what its validation has found; then the log is
  // empty.
  Record close(const NamedValues& validation);
  void write(const Record& record) const;

  // The global step of the first row whose loss is not finite; nothing when all are.
  std::optional<std::int64_t> first_diverged_step() const;
  // Puts what the model plots of a log whose rows are on the host, one a batch, on its board.
  void draw(const EpochLog& log, Module::Stage stage, std::int64_t num_batches) const;
  // The values of the latest row that has reached the host; see Trainer::preview().
  NamedValues preview();

  double seconds() const;  // since begin()
  double data_wait_seconds() const { return source_ == nullptr ? 0 : source_->wait_seconds(); }

 private:
  using Clock = std::chrono::steady_clock;

  void read_latest();
  void report_steps(std::int64_t rows);
  Record step_record(std::int64_t row) const;

  TrainState& state_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::int64_t every_n_steps_;
  BatchSource* source_ = nullptr;
  std::int64_t num_reported_rows_ = 0, num_samples_ = 0;
  double train_seconds_ = 0;
  NamedValues latest_;  // see preview()
  TransferCounts counts_at_start_;
  Clock::time_point start_ = Clock::now(), last_preview_{};
};

}  // namespace kindling
