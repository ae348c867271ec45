#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/inspect/divergence_report.h"
#include "training/loop/epoch_report.h"
#include "training/state/batch_source.h"
#include "training/state/training_context.h"
#include "training/step/step.h"

namespace kindling {

// The sequence of a fit: epochs, batches, validations, records. Custom training loops call its pieces:
//
//   loop.begin_epoch(); while (loop.next_batch(batch)) loop.train_batch(batch); loop.finish_epoch();
class FitLoop {
 public:
  explicit FitLoop(std::shared_ptr<TrainingContext> context);

  // Begins a run with the context's model, which `step` trains.
  void start(std::unique_ptr<Step> step);
  bool has_model() const noexcept { return step_ != nullptr; }
  // The data of a fit. Without data a custom loop brings its batches.
  void set_data(BatchSource train, std::vector<ValidationSource> validation);
  void drop_data();
  std::int64_t accumulated_batches() const noexcept { return latest_.accumulated_batches; }
  bool has_data() const noexcept { return train_.has_value(); }
  bool has_validation() const noexcept { return !validation_.empty(); }

  // Runs epoch after epoch, from where the state is, until is_done(). Returns the values of the last record.
  Metrics run();
  // Runs a few batches of validation, without a record.
  void sanity_check(std::vector<ValidationSource> validation);
  // True when nothing more is to be trained: all epochs or steps are done, or a stop was requested.
  bool is_done();

  // Runs one epoch, or the rest of it. Returns the values of the record; nothing when a stop has ended it:
  // then position, phase and log stay as they are.
  std::optional<Metrics> fit_epoch();
  void begin_epoch();
  bool next_batch(Batch& batch);
  void train_batch(const Batch& batch);
  // Ends an epoch whose batches a custom loop has run; the rest as fit_epoch() does.
  Metrics finish_epoch();

  // Returns the state between two steps, to be saved: what has been logged so far is reported and durable. A
  // run that has diverged is stopped. Collective.
  StateDict save_point();
  // Continues from a saved state instead of from the beginning.
  void resume(const StateDict& saved);
  // Returns the spike after which the run must go back (SpikeOptions::action "rollback"); run() ends there.
  std::optional<EpochReport::StepRows> spike() {
    return must_go_back_ ? report_.first_spike() : std::nullopt;
  }
  // The same for the steps so far, with all that the device knows. Waits for it. Collective.
  bool find_spike();
  // Stops as after a divergence in this step. Collective.
  void give_up(std::int64_t step, std::string reason);
  // After an error: no step follows.
  void abandon_steps();
  // What the model logs from here on belongs to no loop.
  void close_log() { log_.reset(); }

  EpochReport& report() noexcept { return report_; }
  const EpochReport& report() const noexcept { return report_; }
  const DivergenceReport& divergence() const noexcept { return divergence_; }
  EpochLog& evaluation_log() noexcept { return evaluation_log_; }

 private:
  enum class Batches { left, done };  // of the running epoch
  std::optional<Metrics> fit_epoch(Batches batches);
  bool has_batches_left() const;
  std::int64_t num_samples_used() const;  // of endless data
  bool has_all_steps() const;             // max_steps
  bool must_stop();
  void vote_on_stop();  // collective
  bool is_left_open() const;
  StepOutcome run_step(const Batch& batch);
  bool has_met_spike();
  bool is_first_spike();
  bool is_after_spike(const EpochReport::StepRows& step);
  bool passes_over();
  void after_update();
  void end_open_window();
  void require_closed_window() const;
  void stop_if_diverged();
  std::optional<Metrics> leave_open();
  Metrics close_epoch(const NamedValues& validation);
  void update_plateau(const Record& record, bool has_validated);

  // Validations: one at the end of an epoch, others within it (val_check_interval).
  bool validates_in_this_epoch() const;
  double num_intervals(std::int64_t batches) const;
  bool is_validation_due() const;
  // Runs the validation that is due, if any (Phase::validation), and reports it. False: a stop has ended it.
  bool validate_between();
  // `at`: the fraction of the epoch that is done. Nothing when a stop has ended it.
  std::optional<NamedValues> validate(double at);
  std::int64_t num_validation_batches() const noexcept;
  void draw_training() const;

  const std::shared_ptr<TrainingContext> context_;
  TrainState& state_;  // of the context
  EpochReport report_;
  DivergenceReport divergence_;
  EpochLog evaluation_log_;
  std::unique_ptr<Step> step_;
  bool must_go_back_ = false;
  StepOutcome latest_;  // of the latest batch; a window that was abandoned counts as none
  std::optional<BatchSource> train_;
  std::vector<ValidationSource> validation_;
  // Of endless data: how many samples the run had used when it had done so many batches of the epoch.
  struct {
    std::int64_t samples = 0, batch = 0;
  } used_{};
  std::optional<LogScope> log_;  // while a run is open: the model logs into its log
};

}  // namespace kindling
