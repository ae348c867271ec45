#include "cli/check/fit_parts.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "base/joined.h"
#include "cli/config/command_line.h"
#include "cli/run/screen.h"
#include "kindling/base/suggest.h"
#include "kindling/nn/classifier.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/rollout_validation.h"
#include "loggers/metric_charts.h"
#include "nn/monitored_value.h"

namespace kindling {
namespace {

// Returns a warning for a batch size above the number of samples; else an empty text.
std::string batch_size_warning(const DataLoader& loader) {
  const std::int64_t samples = loader.num_samples(), batch = loader.options().batch_size;
  return batch <= samples
             ? ""
             : "data.batch_size: " + grouped_number(batch) + " is more than the " + grouped_number(samples) +
                   " training samples, so every epoch has one batch and one step";
}

// Returns a warning for frozen parameters that the run never trains; else an empty text.
std::string freezing_warning(std::int64_t freeze_epochs, const RunLength& run) {
  if (freeze_epochs == 0 || run.epochs == 0 || freeze_epochs < run.epochs) return "";
  return "model.freeze_epochs: the run of " + counted(run.epochs, "epoch") +
         " ends before the frozen parameters are trained, after " + counted(freeze_epochs, "epoch");
}

// Returns a warning for a warm-up that does not end within the run; else an empty text.
std::string warmup_warning(std::int64_t warmup, const TrainerOptions& options, const RunLength& run) {
  const bool counts_epochs = options.schedule_interval == ScheduleInterval::epoch;
  const std::int64_t length = counts_epochs ? run.epochs : run.steps;
  if (length == 0 || length >= warmup) return "";
  return "schedule.warmup_steps: the run of " + grouped_number(length) +
         (counts_epochs ? " epochs" : " steps") + " ends inside the warm-up of " + grouped_number(warmup) +
         ", so the schedule itself never starts; make the warm-up shorter";
}

// Returns a warning for a mode that contradicts the model; else an empty text.
std::string mode_warning(const FitParts& fit, const std::string& table) {
  const Module::Monitor own = fit.model->monitor();
  const std::string mode = fit.text(table + ".mode"), wanted = own.higher_is_better ? "max" : "min";
  const std::string monitor = fit.text(table + ".monitor");  // empty: the model's own
  if ((!monitor.empty() && monitor != own.name) || mode.empty() || mode == wanted) return "";
  return table + ".mode: it is \"" + mode + "\", but the model says that " +
         (own.higher_is_better ? "higher" : "lower") + " values of '" + own.name + "' are better";
}

// Returns a warning for options of the loss that the model's own loss does not use, and for class weights
// with which it can be NaN.
std::string class_loss_warning(const FitParts& fit) {
  const auto* const model = dynamic_cast<const ClassLossModel*>(fit.trial.model.get());
  if (model == nullptr || !fit.trial.has_trained) return "";
  const std::string name = fit.trial.model->name();
  const bool is_classifier = dynamic_cast<const Classifier*>(fit.trial.model.get()) != nullptr;
  if (const std::string key = changed_loss_option(fit.config.class_loss);
      is_classifier && !key.empty() && !model->has_used_loss_options())
    return "model." + key + ": the step of " + name + " has a custom loss, which does not use it";
  if (!model->class_weights().defined()) return "";
  if (!model->has_used_class_weights())
    return "model.class_weights: the step of " + name +
           " has a custom loss, which does not use them; it must apply class_weights() itself";
  const at::Tensor zeros = model->class_weights().eq(0).nonzero();
  if (zeros.size(0) == 0) return "";
  return "model.class_weights: class " + std::to_string(zeros.flatten()[0].item<std::int64_t>()) +
         " has the weight 0; the loss of a batch that contains only such classes is NaN";
}

std::string sampler_warning(const FitParts& fit) {
  if (!fit.config.model.has_balanced_weights() || fit.text("data.sampler") != "balanced") return "";
  return "model.class_weights: data.sampler = \"balanced\" is set, too, so the classes are balanced "
         "twice; remove one of them";
}

// The options of each `normalize` of a list of transforms.
std::vector<std::string> normalizations(const FitParts& fit, const std::string& list) {
  std::vector<std::string> found;
  for (std::size_t i = 0;; ++i) {
    const std::string table = list + "[" + std::to_string(i) + "].";
    const std::string name = fit.text(table + "name");
    if (name.empty()) return found;
    if (name == "normalize") found.push_back(fit.text(table + "mean") + fit.text(table + "std"));
  }
}

// Returns a warning if training and validation see images of another scale; else an empty text.
std::string scale_warning(const FitParts& fit) {
  if (normalizations(fit, "data.train_transforms") == normalizations(fit, "data.val_transforms")) return "";
  return "data.val_transforms: they normalize images otherwise than data.train_transforms, so validation "
         "and predictions see other values than the training";
}

// True for values that the trainer adds to the records of epochs.
bool is_from_trainer(const std::string& name) {
  return is_machine_metric(name) || name == "lr" || name == "skipped_steps" || name == "spikes" ||
         name == "passed_batches" || name.starts_with("grad_norm/");
}

// Callbacks of the user may add values to the records. A misspelled name gets a warning then.
bool has_own_callbacks(const TrainerOptions& options) {
  return std::ranges::any_of(options.callbacks, [](const auto& callback) {
    return callback->averaging() == nullptr && dynamic_cast<const EarlyStopping*>(callback.get()) == nullptr;
  });
}

class MonitorCheck {
 public:
  MonitorCheck(const FitParts& fit, FitFindings& findings) : fit_(fit), findings_(findings) {}

  void check(const std::string& table) {
    const std::string key = table + ".monitor", name = fit_.text(key), mode = fit_.text(table + ".mode");
    if (name.empty()) return check_default(table);
    const std::vector<std::string> names = logged_names();
    const bool is_known = std::ranges::find(names, name) != names.end() || is_from_trainer(name);
    if (!is_known && has_own_callbacks(fit_.trainer))
      warn_of_misspelling(key, name, names);
    else if (!is_known && is_certain(table, name, names))
      findings_.add(key, "'" + key + "': the model logs no value '" + name + "'", names);
    else
      findings_.collect(key, [&] { monitor_of(name, mode, *fit_.model, key); });
  }

  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  // Without a monitor, callbacks and schedules watch the value that the model names.
  void check_default(const std::string& table) {
    const std::string name = fit_.model->monitor().name;
    std::vector<std::string> names = logged_names();
    if (fit_.config.batch_finder.is_on)  // no batch was tried
      std::erase_if(names, [](const std::string& each) { return each.starts_with("val_"); });
    const bool is_known = std::ranges::find(names, name) != names.end() || is_from_trainer(name);
    const bool is_checked =
        fit_.is_data_complete && table != "checkpoint" && !has_own_callbacks(fit_.trainer);
    if (!is_checked || is_known || fit_.can_validate()) return;
    findings_.add(table + ".monitor",
                  "'" + table + ".monitor': it is '" + name +
                      "', as the model says, but the run has no validation to log it",
                  names);
  }

  void warn_of_misspelling(const std::string& key, const std::string& name,
                           const std::vector<std::string>& names) {
    const std::string guess = fit_.trial.has_trained ? nearest(name, names) : "";
    if (!guess.empty())
      warnings_.push_back(key + ": the model logs no value '" + name +
                          "', so a callback has to add it; did you mean '" + guess + "'?");
  }

  // The values of epoch records.
  std::vector<std::string> logged_names() const {
    std::vector<std::string> names = names_of_model();
    if (!fit_.is_data_complete || !fit_.data) return names;
    RolloutErrors errors;
    errors.rmse.resize(static_cast<std::size_t>(fit_.data->rollouts().num_steps));
    errors.relative = errors.rmse;
    for (auto& [name, value] : named_values(errors)) names.push_back(std::move(name));
    return names;
  }

  // If no batch could be tried, the values that models usually have.
  std::vector<std::string> names_of_model() const {
    if (fit_.trial.has_trained) return fit_.trial.names;
    std::vector<std::string> names{"train_loss", "val_loss"};
    if (const std::string own = fit_.model->monitor().name; own != "val_loss") {
      if (own.starts_with("val_")) names.push_back("train_" + own.substr(4));
      names.push_back(own);
    }
    for (const std::string& metric : fit_.config.model.metrics)
      for (const char* stage : {"train_", "val_"}) names.push_back(stage + metric);
    return names;
  }

  // False if the run may have a value that is not among `names`.
  bool is_certain(const std::string& table, const std::string& name,
                  const std::vector<std::string>& names) const {
    // Only the data knows its further validation sets, whose values are val_loss/NAME.
    if (!fit_.trial.has_trained)
      return !findings_.empty() && name.find('/') == std::string::npos && !nearest(name, names).empty();
    if (fit_.trial.has_validated || !name.starts_with("val_")) return true;
    return table != "checkpoint" &&
           !fit_.can_validate();  // a checkpoint without a value is only not the best
  }

  const FitParts& fit_;
  FitFindings& findings_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::string FitParts::text(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? "" : unquoted(found->second);
}

std::int64_t FitParts::count(const std::string& key) const {
  const std::string digits = text(key);
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

bool FitParts::can_validate() const {
  return validation && (trainer.limit_val_batches != 0 || trainer.fast_dev_run);
}

RunLength length_of_run(const FitParts& fit) {
  const TrainerOptions& options = fit.trainer;
  const DataLoader& loader = *fit.train;
  const std::int64_t samples = loader.num_samples(), batch = loader.options().batch_size * fit.num_ranks;
  std::int64_t batches = loader.options().drop_last ? samples / batch : (samples + batch - 1) / batch;
  batches = std::min(batches, options.limit_train_batches.value_or(batches));
  if (options.overfit_batches) batches = std::min(options.overfit_batches->of(batches), batches);
  const std::int64_t window = options.accumulate_grad_batches,
                     per_epoch = std::max<std::int64_t>((batches + window - 1) / window, 1);
  std::int64_t steps = options.max_epochs.value_or(0) * per_epoch;
  if (options.max_steps) steps = steps > 0 ? std::min(steps, *options.max_steps) : *options.max_steps;
  return {.epochs = (steps + per_epoch - 1) / per_epoch, .steps = steps};
}

std::vector<std::string> warnings_of(const FitParts& fit) {
  std::vector<std::string> warnings{scale_warning(fit), class_loss_warning(fit)};
  if (fit.trial.lacked_memory)
    warnings.push_back(
        "model: memory was exhausted when a batch was tried, so the fit may fail; make the model or "
        "data.batch_size smaller");
  for (const std::string& name : fit.trial.repeated_names)
    warnings.push_back("'" + name +
                       "' is logged more than once in a step: each value replaces the one before");
  if (fit.train && !fit.trainer.fast_dev_run) {
    const RunLength length = length_of_run(fit);
    if (!fit.config.batch_finder.is_on) warnings.push_back(batch_size_warning(*fit.train));
    for (const char* table : {"checkpoint", "early_stopping", "schedule"})
      warnings.push_back(mode_warning(fit, table));
    warnings.push_back(sampler_warning(fit));
    warnings.push_back(freezing_warning(fit.config.model.freeze_epochs, length));
    warnings.push_back(warmup_warning(fit.count("schedule.warmup_steps"), fit.trainer, length));
  }
  std::erase(warnings, "");
  return warnings;
}

std::vector<std::string> check_monitors(const FitParts& fit, FitFindings& findings) {
  if (!fit.model) return {};
  MonitorCheck monitors(fit, findings);
  monitors.check("checkpoint");
  if (fit.text("early_stopping.strict") == "true") monitors.check("early_stopping");
  if (fit.trainer.schedule.plateau) monitors.check("schedule");
  return monitors.warnings();
}

}  // namespace kindling
