#include "training/fit_loop.h"

#include <algorithm>
#include <utility>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "nn/carried_states.h"
#include "training/evaluate_loop.h"
#include "training/libtorch_errors.h"
#include "training/monitored_value.h"
#include "training/named_optimizers.h"
#include "training/rank_states.h"
#include "training/replicas.h"
#include "training/validation.h"

namespace kindling {

bool has_all_steps(const FitParts& fit) {
  return fit.options.max_steps && fit.state.progress.global_step >= *fit.options.max_steps;
}

namespace {

bool is_long_enough(const FitParts& fit) {
  const Progress& at = fit.state.progress;
  return at.epoch >= fit.options.min_epochs && at.global_step >= fit.options.min_steps;
}

bool must_stop(const FitParts& fit) {
  if (fit.state.time.is_over()) fit.stop.request_stop(FitReason::time);
  if (is_long_enough(fit) && std::exchange(fit.state.early_stop_waits, false))
    fit.stop.request_stop(FitReason::early_stop);
  return fit.stop.stop_requested() || has_all_steps(fit);
}

// Several processes come here at once, with the whole log on the host: they tell together.
void stop_if_diverged(const FitParts& fit) {
  if (fit.divergence.step()) return;  // it has been told
  const auto step = fit.report.first_diverged();
  if (!step) return;
  fit.divergence.tell(step->first, step->num_batches, fit.report.source());
  fit.stop.request_stop(FitReason::diverged);
}

// An epoch that a stop has ended is told up to there; it goes on another time.
std::optional<Metrics> leave_open(const FitParts& fit) {
  fit.report.report_all();
  stop_if_diverged(fit);
  return std::nullopt;
}

void tell_of_skipped_steps(const Record& record) {
  if (const double* steps = record.find("skipped_steps"))
    log_warning("epoch " + std::to_string(record.epoch) + ": " + number_text(*steps) +
                " steps whose loss or gradients were not finite have been left out");
}

// Shows the schedule what it watches, unless the validation, which may tell it, is left out in this epoch.
void look_for_plateau(const FitParts& fit, const Record& record, bool has_validated) {
  if (!fit.state.plateaus) return;
  const std::string& name = fit.state.plateaus->options().monitor;
  const bool has_validation = fit.validation != nullptr && fit.validation->num_batches() > 0;
  if (record.find(name) == nullptr && ((has_validation && !has_validated) || record.find("skipped_steps")))
    return;
  fit.state.plateaus->observe(value_of(record, name, "plateau schedule"));
}

// The one end of an epoch. It advances before callbacks hear of it, so that what they save does not repeat
// it.
Metrics close_epoch(const FitParts& fit, const NamedValues& validation) {
  Module& model = *fit.state.model;
  stop_if_diverged(fit);
  tell_of_idle(model, fit.state.optimizers, fit.state.log);
  Record record = fit.report.close(validation);
  fit.state.is_torn = true;  // the log is empty and the record not yet told
  tell_of_skipped_steps(record);
  Progress& at = fit.state.progress;
  forget_carried_states(model, /*at_epoch_end=*/true);
  at = {.epoch = at.epoch + 1, .batch = 0, .global_step = at.global_step, .phase = Phase::training};
  fit.callbacks.call(&Callback::on_epoch_record, model, record);
  fit.report.write(record);
  look_for_plateau(fit, record, !validation.empty());
  fit.state.is_torn = false;
  const Record& finished = record;
  fit.callbacks.call(&Callback::on_epoch_end, model, finished);
  fit.report.begin(nullptr);
  return Metrics(record.values.begin(), record.values.end());
}

void after_update(const FitParts& fit) {
  ++fit.state.progress.global_step;
  {
    const ActivityScope scope(fit.info->clock.get(), Activity::update);
    fit.callbacks.average_after_step(*fit.state.model);
  }
  fit.report.after_step();
  if (!fit.report.has_met_divergence()) return;
  // When a row comes to the host, it does so in each process by itself.
  if (fit.group != nullptr)
    fit.stop.request_stop(FitReason::diverged);
  else
    stop_if_diverged(fit);
}

// An own loop may leave a window before it is full.
void end_open_window(const FitParts& fit) {
  if (fit.state.accumulated_batches == 0) return;
  fit.state.is_torn = true;
  fit.step.end_window();
  after_update(fit);
  fit.state.is_torn = false;
}

// Validates and closes, unless a stop leaves something of the epoch to be done. Batches that come from nobody
// knows where end with it.
std::optional<Metrics> end_epoch(const FitParts& fit) {
  end_open_window(fit);
  fit.step.end_epoch();
  if (fit.group != nullptr) require_replicas(*fit.group, *fit.state.model, fit.state.progress.global_step);
  if (fit.train != nullptr && fit.stop.stop_requested()) return leave_open(fit);
  fit.callbacks.average_after_epoch(*fit.state.model);
  const auto validation = validate_at_end(fit);
  return validation ? std::optional(close_epoch(fit, *validation)) : leave_open(fit);
}

constexpr const char* kNumBatches = "progress.num_batches";

// Within an epoch a place is a number of batches, which is another place among others. One may have meant it,
// as with a smaller batch_size where memory was exhausted.
void tell_of_other_batches(const StateDict& saved, std::int64_t there) {
  const auto found = saved.metadata.find(kNumBatches);
  if (found == saved.metadata.end() || there == 0 || found->second == std::to_string(there)) return;
  log_warning("the training was saved inside of an epoch of " + found->second +
              " batches, and its epochs have " + std::to_string(there) +
              " now: in this one samples are left out or come twice");
}

}  // namespace

StateDict save_point(const FitParts& fit) {
  StateDict state;
  fit.state.save(state);
  if (fit.state.progress.batch > 0 && fit.info->num_train_batches > 0)
    state.metadata[kNumBatches] = std::to_string(fit.info->num_train_batches);
  fit.report.report_all();
  stop_if_diverged(fit);  // here and in the other processes
  if (fit.divergence.step())
    throw CheckpointError({.place = "the training",
                           .found = "it has diverged at step " + std::to_string(*fit.divergence.step()),
                           .wanted = "a state to go on from",
                           .remedy = "go on from an earlier checkpoint"});
  if (fit.group != nullptr) state = state_of_all(state, *fit.group);
  return state;
}

void resume(const FitParts& fit, const StateDict& saved) {
  fit.state.load(own_state(saved, fit.group));
  tell_of_other_batches(saved, fit.info->num_train_batches);
  if (!has_own_state(saved, fit.group)) part_random_state(fit.state.log.device(), fit.group->rank());
  const RandomStateGuard random_state(fit.state.log.device());  // against what is drawn here
  // Checkpoints from later on go first: they count on what the loggers now take back.
  fit.callbacks.call(&Callback::on_resume, *fit.state.model);
  fit.report.resume();
}

bool is_done(const FitParts& fit) {
  return must_stop(fit) || (fit.options.max_epochs && fit.state.progress.epoch >= *fit.options.max_epochs);
}

namespace {

// max_steps are done and have been saved, but not yet what closes their epoch.
bool is_left_open(const FitParts& fit) {
  const Progress& at = fit.state.progress;
  return at.batch > 0 && !fit.stop.stop_requested() &&
         (!fit.options.max_epochs || at.epoch < *fit.options.max_epochs);
}

}  // namespace

Metrics fit_loop(const FitParts& fit) {
  Metrics latest;
  fit.stop.ask_all();
  while (!is_done(fit) || is_left_open(fit)) {
    auto metrics = fit_epoch(fit);
    if (metrics) latest = std::move(*metrics);
    fit.stop.ask_all();
  }
  return latest;
}

std::optional<Metrics> fit_epoch(const FitParts& fit) {
  const Progress& at = fit.state.progress;
  if (at.phase == Phase::training || (at.batch < fit.train->num_batches() && !has_all_steps(fit))) {
    begin_epoch(fit);
    Batch batch;
    while (next_batch(fit, batch)) train_batch(fit, batch);
  } else {
    fit.report.begin(nullptr);
  }
  return end_epoch(fit);
}

void begin_epoch(const FitParts& fit) {
  Module& model = *fit.state.model;
  const Progress& at = fit.state.progress;
  fit.report.begin(fit.train);
  model.train();  // before the callbacks, which may freeze a layer
  {
    std::optional<RandomStateGuard> of_the_epoch;  // which has had this moment before
    if (at.batch > 0) of_the_epoch.emplace(fit.state.log.device());
    fit.callbacks.call(&Callback::on_train_epoch_start, model);
  }
  fit.train->seek(at.epoch, at.batch);
}

// A stop waits for the end of a window.
bool next_batch(const FitParts& fit, Batch& batch) {
  const bool is_between_steps = fit.state.accumulated_batches == 0;
  if (is_between_steps && (must_stop(fit) || !validate_between(fit) || must_stop(fit))) return false;
  const ActivityScope scope(fit.info->clock.get(), Activity::data);
  return fit.train->next(batch);
}

namespace {

bool ends_window(const FitParts& fit) {
  const std::int64_t batches = fit.state.progress.batch + 1;
  return fit.state.accumulated_batches + 1 == fit.options.accumulate_grad_batches ||
         (fit.train != nullptr && batches == fit.train->num_batches());
}

// What a step has logged goes with it when it throws.
void run_step(const FitParts& fit, const Batch& batch) {
  const bool is_ready = !fit.info->precision.weights && !fit.info->is_channels_last;
  try {
    with_memory_errors("training step", fit.state.progress.global_step + 1, batch.num_samples(), [&] {
      fit.step.run(is_ready ? batch : as_trained(batch, *fit.info), ends_window(fit));
    });
  } catch (...) {
    fit.state.log.drop_marks();
    throw;
  }
}

}  // namespace

void train_batch(const FitParts& fit, const Batch& batch) {
  Module& model = *fit.state.model;
  if (!model.is_training()) model.train();  // an own loop may have used it for acting
  fit.info->log = &fit.state.log;
  fit.state.is_torn = true;
  fit.state.progress.phase =
      Phase::training;  // again, where an own loop goes on after a validation has thrown
  fit.state.random_before_validation.clear();
  run_step(fit, batch);
  ++fit.state.progress.batch;
  fit.report.after_batch(batch.num_counted());
  if (fit.state.accumulated_batches == 0) after_update(fit);
  if (fit.state.accumulated_batches == 0 && is_validation_due(fit))
    fit.state.progress.phase = Phase::validation;
  fit.state.is_torn = false;
  if (fit.state.accumulated_batches == 0 && fit.stop.take_save()) fit.callbacks.tell_of_wish();
  fit.callbacks.call(&Callback::on_train_batch_end, model);
}

Metrics finish_epoch(const FitParts& fit) { return end_epoch(fit).value_or(Metrics{}); }

void sanity_check(const FitParts& fit, BatchSource& batches) {
  Module& model = *fit.state.model;
  const EvaluationScope scope(model, fit.info, fit.evaluation_log);
  fit.callbacks.call(&Callback::on_validation_start, model);
  // To its end, also after a stop: a training that goes on begins with the random state behind it.
  evaluate_loop(model, &Module::validation_step, batches, fit.evaluation_log, /*stop=*/nullptr);
  fit.callbacks.call(&Callback::on_validation_end, model);
}

}  // namespace kindling
