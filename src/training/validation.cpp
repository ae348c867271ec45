#include "training/validation.h"

#include <algorithm>
#include <cmath>

#include "device/random_state.h"
#include "metrics/means_of_all.h"
#include "training/evaluate_loop.h"

namespace kindling {
namespace {

bool validates_in_this_epoch(const FitParts& fit) {
  return fit.validation != nullptr && fit.validation->num_batches() > 0 &&
         (fit.state.progress.epoch + 1) % fit.options.check_val_every_n_epoch == 0;
}

void draw_training(const FitParts& fit) {
  fit.report.draw(fit.state.log, Module::Stage::train, fit.info->num_train_batches);
}

// At the share `at` of the epoch; nothing when a stop has ended it.
std::optional<NamedValues> validate(const FitParts& fit, double at) {
  const ActivityScope activity(fit.info->clock.get(), Activity::validation);
  Module& model = *fit.state.model;
  const Device device = fit.state.log.device();
  fit.state.random_before_validation = random_state(device);
  const AveragedWeights averaged(fit.callbacks.trainer(), fit.callbacks.evaluated_average());
  const EvaluationScope scope(model, fit.info, fit.evaluation_log);
  fit.callbacks.call(&Callback::on_validation_start, model);
  std::optional<NamedValues> values;
  if (evaluate_loop(model, &Module::validation_step, *fit.validation, fit.evaluation_log,
                    fit.stop.at_once())) {
    values = means_of_all(fit.evaluation_log, fit.group);
    if (at == 1) draw_training(fit);
    fit.report.draw(fit.evaluation_log, Module::Stage::val, fit.evaluation_log.num_rows(), at);
  }
  fit.callbacks.call(&Callback::on_validation_end, model);
  // What is done again, and what comes between two steps, takes no random numbers from the training.
  if (!values || at < 1) set_random_state(device, fit.state.random_before_validation);
  fit.state.random_before_validation.clear();
  return values;
}

// That are over after so many batches. A share that is meant to give a whole number may miss it by a last
// bit.
double num_intervals(const FitParts& fit, std::int64_t batches) {
  const Portion& portion = fit.options.val_check_interval;
  const double share_of = portion.is_share() ? static_cast<double>(fit.train->num_batches()) : 1;
  return std::floor(static_cast<double>(batches) / (portion.number() * share_of) + 1e-9);
}

}  // namespace

std::optional<NamedValues> validate_at_end(const FitParts& fit) {
  fit.report.end_training();
  fit.state.progress.phase = Phase::validation;
  if (validates_in_this_epoch(fit)) return validate(fit, /*at=*/1);
  draw_training(fit);
  return NamedValues{};
}

bool is_validation_due(const FitParts& fit) {
  if (fit.train == nullptr || has_all_steps(fit) || !validates_in_this_epoch(fit)) return false;
  const std::int64_t batches = fit.train->num_batches(), done = fit.state.progress.batch,
                     before = std::max<std::int64_t>(done - fit.options.accumulate_grad_batches, 0);
  return done < batches && num_intervals(fit, done) > num_intervals(fit, before);
}

bool validate_between(const FitParts& fit) {
  Progress& at = fit.state.progress;
  if (at.phase == Phase::training) return true;
  const double start = fit.report.seconds();
  fit.report.report_pending();  // in the order of the steps
  const auto values =
      validate(fit, static_cast<double>(at.batch) / static_cast<double>(fit.train->num_batches()));
  if (!values) return false;
  const Record record = fit.report.validation_record(*values);
  at.phase = Phase::training;
  fit.state.is_torn = true;  // the record is not yet told
  fit.report.write(record);
  fit.state.is_torn = false;
  fit.callbacks.call(&Callback::on_validation_record, *fit.state.model, record);
  fit.report.leave_out(fit.report.seconds() - start);
  return true;
}

}  // namespace kindling
