#include "training/fit_loop.h"

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "training/evaluate_loop.h"
#include "training/libtorch_errors.h"

namespace kindling {
namespace {

bool must_stop(const FitParts& fit) {
  return fit.stop.stop_requested() ||
         (fit.options.max_steps && fit.state.progress.global_step >= *fit.options.max_steps);
}

// Nothing when a stop has ended it.
std::optional<NamedValues> validate(const FitParts& fit) {
  fit.report.end_training();
  fit.state.progress.phase = Phase::validation;
  const auto draw_training = [&] {
    fit.report.draw(fit.state.log, Module::Stage::train, fit.info->num_train_batches);
  };
  if (fit.validation == nullptr || fit.validation->num_batches() == 0) {
    draw_training();
    return NamedValues{};
  }
  Module& model = *fit.state.model;
  const Device device = fit.state.log.device();
  fit.state.random_before_validation = random_state(device);
  const AveragedWeights averaged(fit.callbacks.trainer(), fit.callbacks.evaluated_average());
  const EvaluationScope scope(model, fit.info, fit.evaluation_log);
  fit.callbacks.call(&Callback::on_validation_start, model);
  std::optional<NamedValues> values;
  if (evaluate_loop(model, &Module::validation_step, *fit.validation, fit.evaluation_log, &fit.stop)) {
    values = fit.evaluation_log.means();
    draw_training();
    fit.report.draw(fit.evaluation_log, Module::Stage::val, fit.evaluation_log.num_rows());
  }
  fit.callbacks.call(&Callback::on_validation_end, model);
  if (!values) set_random_state(device, fit.state.random_before_validation);
  fit.state.random_before_validation.clear();
  return values;
}

void stop_if_diverged(const FitParts& fit) {
  if (fit.divergence.step()) return;  // it has been told
  const auto step = fit.report.first_diverged();
  if (!step) return;
  fit.divergence.tell(*step, fit.report.source());
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

// The one end of an epoch. It advances before callbacks hear of it, so that what they save does not repeat
// it.
Metrics close_epoch(const FitParts& fit, const NamedValues& validation) {
  Module& model = *fit.state.model;
  stop_if_diverged(fit);
  fit.state.is_torn = true;  // the log is empty and the record not yet told
  Record record = fit.report.close(validation);
  tell_of_skipped_steps(record);
  Progress& at = fit.state.progress;
  at = {.epoch = at.epoch + 1, .batch = 0, .global_step = at.global_step, .phase = Phase::training};
  fit.callbacks.call(&Callback::on_epoch_record, model, record);
  fit.report.write(record);
  fit.state.is_torn = false;
  const Record& finished = record;
  fit.callbacks.call(&Callback::on_epoch_end, model, finished);
  fit.report.begin(nullptr);
  return Metrics(record.values.begin(), record.values.end());
}

// Validates and closes, unless a stop leaves something of the epoch to be done. Batches that come from nobody
// knows where end with it.
std::optional<Metrics> end_epoch(const FitParts& fit) {
  if (fit.train != nullptr && fit.stop.stop_requested()) return leave_open(fit);
  fit.callbacks.average_after_epoch(*fit.state.model);
  const auto validation = validate(fit);
  return validation ? std::optional(close_epoch(fit, *validation)) : leave_open(fit);
}

}  // namespace

StateDict save_point(const FitParts& fit) {
  StateDict state;
  fit.state.save(state);
  fit.report.report_all();
  stop_if_diverged(fit);
  if (fit.divergence.step())
    throw CheckpointError({.place = "the training",
                           .found = "it has diverged at step " + std::to_string(*fit.divergence.step()),
                           .wanted = "a state to go on from",
                           .remedy = "go on from an earlier checkpoint"});
  return state;
}

void resume(const FitParts& fit, const StateDict& saved) {
  fit.state.load(saved);
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
  while (!is_done(fit) || is_left_open(fit)) {
    auto metrics = fit_epoch(fit);
    if (metrics) latest = std::move(*metrics);
  }
  return latest;
}

std::optional<Metrics> fit_epoch(const FitParts& fit) {
  if (fit.state.progress.phase == Phase::training) {
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

bool next_batch(const FitParts& fit, Batch& batch) { return !must_stop(fit) && fit.train->next(batch); }

void train_batch(const FitParts& fit, const Batch& batch) {
  Module& model = *fit.state.model;
  if (!model.is_training()) model.train();  // an own loop may have used it for acting
  fit.info->log = &fit.state.log;
  fit.state.is_torn = true;
  fit.state.progress.phase =
      Phase::training;  // again, where an own loop goes on after a validation has thrown
  fit.state.random_before_validation.clear();
  with_memory_errors("training step", fit.state.progress.global_step + 1, batch.num_samples(),
                     [&] { fit.step.run(batch); });
  ++fit.state.progress.global_step;
  ++fit.state.progress.batch;
  fit.callbacks.average_after_step(model);
  fit.report.after_step(batch.num_samples());
  if (fit.report.has_met_divergence()) stop_if_diverged(fit);
  fit.state.is_torn = false;
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
