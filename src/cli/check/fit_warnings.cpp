#include "cli/check/fit_warnings.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/nonzero.h>

#include "base/joined.h"
#include "kindling/nn/classifier.h"

namespace kindling {
namespace {

// "1,438"
std::string grouped_number(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

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

// Returns a warning for class weights that the loss does not use, or with which it can be NaN.
std::string class_weights_warning(const FitParts& fit) {
  const std::string key =
      fit.config.model.balanced_class_weights ? "model.balanced_class_weights" : "model.class_weights";
  const auto* const classifier = dynamic_cast<const Classifier*>(fit.trial.model.get());
  if (classifier == nullptr || !classifier->class_weights().defined() || !fit.trial.has_trained) return "";
  if (!classifier->has_used_class_weights())
    return key + ": the step of " + classifier->name() +
           " has a custom loss, which does not use them; it must apply class_weights() itself";
  const at::Tensor zeros = classifier->class_weights().eq(0).nonzero();
  if (zeros.size(0) == 0) return "";
  return key + ": class " + std::to_string(zeros.flatten()[0].item<std::int64_t>()) +
         " has the weight 0; the loss of a batch that contains only such classes is NaN";
}

std::string sampler_warning(const FitParts& fit) {
  if (!fit.config.model.balanced_class_weights || fit.text("data.sampler") != "balanced") return "";
  return "model.balanced_class_weights: data.sampler = \"balanced\" is set, too, so the classes are balanced "
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

}  // namespace

std::vector<std::string> warnings_of(const FitParts& fit) {
  std::vector<std::string> warnings{scale_warning(fit), class_weights_warning(fit)};
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

}  // namespace kindling
