#include "cli/check/fit_check.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "base/joined.h"
#include "cli/check/fit_findings.h"
#include "cli/check/fit_parts.h"
#include "cli/run/fit_processes.h"
#include "cli/run/fit_run.h"
#include "cli/run/start_files.h"
#include "data/loading/window_dataset.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/data/input_transform.h"
#include "kindling/device/device.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/schedule.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/lr_finder.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "kindling/training/trainer.h"
#include "nn/class_values.h"
#include "runs/run_folder.h"
#include "training/state/batch_source.h"
#include "training/state/train_state.h"
#include "training/state/training_context.h"
#include "training/step/optimizer_update.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

at::Tensor random_state_of_cpu() { return at::globalContext().defaultGenerator(at::kCPU).get_state(); }

class FitCheck {
 public:
  FitCheck(const LoadedConfig& loaded, const FitCheckOptions& options)
      : options_(options),
        fit_{.config = *loaded.config, .num_ranks = options.num_ranks, .values = loaded.config->values()},
        findings_(loaded.document) {
    findings_.collect("trainer", [&] { fit_.trainer = fit_.config.trainer_options(); });
  }

  CheckedFit run() {
    if (!is_resumed() && options_.tries_batch)
      findings_.collect("run.dir",
                        [&] { require_usable(fs::path(fit_.config.folder.dir) / fit_.config.run.name); });
    check_devices();
    check_data();
    check_model();
    if (check_class_weights() && tries_batch()) check_batch();
    if (check_frozen() && !has_wrong_groups_) check_optimizer();
    add_warnings(check_monitors(fit_, findings_));
    if (findings_.empty()) check_checkpoint();
    findings_.throw_if_any();
    if (!is_resumed()) add_warnings(warnings_of(fit_));
    if (is_drawn_ || (fit_.trial.has_trained && has_custom_data())) {
      fit_.train.reset(), fit_.validation.reset(), fit_.data.reset();  // two copies may not fit into memory
      fit_.data = fit_.config.make_data();
    }
    return {.data = std::move(fit_.data), .warnings = std::move(warnings_)};
  }

 private:
  bool is_resumed() const { return !options_.checkpoint.empty(); }

  bool tries_batch() const { return options_.tries_batch && !fit_.config.batch_finder.is_on; }

  static bool is_in_memory(const DataLoader& loader) { return !tensors_in_memory(loader.dataset()).empty(); }

  // A user's data set may have a state that changes with every batch, such as a generator of its own, and so
  // may a transform of batches in a user's data module.
  bool has_custom_data() const {
    Registry builtin;
    register_builtin(builtin);
    if (builtin.data_modules.has(fit_.config.data.name.name)) return false;
    const auto is_custom = [](const std::shared_ptr<DataLoader>& loader) {
      return loader && !is_in_memory(*loader);
    };
    return fit_.trial.has_transformed || is_custom(fit_.train) || is_custom(fit_.validation);
  }

  TrainerOptions options_on_cpu() const {
    TrainerOptions options = fit_.trainer;
    options.num_gpus = 0;
    options.require_gpus = false;
    options.num_threads.reset();
    options.callbacks.clear();
    return options;
  }

  // Finds gradient shards that do not fit the ranks, and GPUs that the config requires and that are missing.
  void check_devices() {
    if (options_.num_ranks > 1)
      has_wrong_shards_ =
          !findings_.collect("trainer", [&] { require_shards_fit(fit_.trainer, options_.num_ranks); });
    if (options_.num_ranks == 1 && fit_.trainer.require_gpus)
      findings_.collect("trainer", [&] {
        TrainerOptions options = options_on_cpu();
        options.num_gpus = fit_.trainer.num_gpus;
        options.require_gpus = true;
        const Trainer probe(options);
      });
  }

  // Data that draws random numbers for its loaders would draw them again in the fit, which therefore gets
  // new data that has not drawn yet.
  void check_data() {
    if (!findings_.collect("data", [&] { fit_.data = fit_.config.make_data(); })) return;
    const at::Tensor before = random_state_of_cpu();
    findings_.collect("data", [&] {
      make_train_loader();
      if (!fit_.train) throw DataError({.place = "data", .found = "the data has no train_dataloader()"});
    });
    const bool has_validation =
        findings_.collect("data", [&] { fit_.validation = fit_.data->val_dataloader(); });
    if (fit_.train && options_.num_ranks > 1 && !has_wrong_shards_)
      findings_.collect("trainer", [&] { check_partition(); });
    else if (fit_.train && has_validation && options_.num_ranks == 1)
      findings_.collect("trainer", [&] { Trainer(options_on_cpu()).prepare_data(*fit_.data); });
    is_drawn_ = !at::equal(before, random_state_of_cpu());
    fit_.is_data_complete = findings_.empty();
  }

  void make_train_loader() {
    with_key_of_batch_size([&] { fit_.train = fit_.data->train_dataloader(); });
  }

  void check_partition() {
    with_key_of_batch_size([&] {
      require_partition(with_fast_dev_run(fit_.trainer), *fit_.data, fit_.train, options_.num_ranks);
    });
  }

  // Throws ConfigError if `drop_last` leaves no batch.
  static void with_key_of_batch_size(const std::function<void()>& call) {
    try {
      call();
    } catch (const DataError& error) {
      ErrorParts parts = error.parts();
      if (!parts.found.starts_with("drop_last ")) throw;
      parts.place = "data.batch_size";
      throw ConfigError(parts);
    }
  }

  void check_model() {
    findings_.collect("model", [&] { fit_.model = fit_.config.make_unfrozen_model(&warnings_); });
    if (!fit_.model) return;
    has_wrong_groups_ =
        !findings_.collect("optimizer.groups", [&] { fit_.config.require_groups(*fit_.model); });
    // One by one, because an exception names only the first.
    const std::vector<std::string>& patterns = fit_.config.model.freeze;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      findings_.collect("model.freeze[" + std::to_string(i) + "]",
                        [&] { fit_.model->freeze_by_name({patterns[i]}); });
    if (!is_resumed() && (fit_.config.model.init_weights || fit_.config.optimizer_start.init_state))
      findings_.collect("model.init_weights", [&] {
        if (fit_.data) require_same_columns(fit_.config, *fit_.data);
        start_from_files(fit_.config, *fit_.config.make_unfrozen_model());
      });
    if (!is_resumed() && fit_.config.lr_finder.is_on)
      findings_.collect("lr_finder", [&] { require_one_lr(fit_.trainer, *fit_.model); });
  }

  // Returns false for an error.
  bool check_class_weights() {
    if (!fit_.model || !fit_.is_data_complete) return true;
    return findings_.collect("model.class_weights",
                             [&] { give_class_weights(fit_.config, *fit_.model, *fit_.data); });
  }

  // Returns a model for a trial.
  std::shared_ptr<Module> weighted_model() {
    auto model = fit_.config.make_unfrozen_model();
    if (const auto* const weighted = dynamic_cast<const ClassLossModel*>(fit_.model.get()))
      if (auto* const trial = dynamic_cast<ClassLossModel*>(model.get()))
        trial->set_class_weights(weighted->class_weights());
    return model;
  }

  // Throws ConfigError for a metric that does not fit the labels or outputs.
  void refuse_metric(const DataError& error) const {
    const std::vector<std::string>& metrics = fit_.config.model.metrics;
    const auto found = std::ranges::find(metrics, error.parts().place);
    if (found == metrics.end()) return;
    ErrorParts parts = error.parts();
    parts.place = "model.metrics[" + std::to_string(found - metrics.begin()) + "]";
    parts.found = "'" + *found + "': " + parts.found;
    throw ConfigError(parts);
  }

  void check_batch() {
    if (!fit_.model || !fit_.is_data_complete) return;
    if (!findings_.collect("model.num_classes", [&] { refuse_more_classes(); })) return;
    try {
      fit_.trial = try_batch(
          fit_.trainer, [this] { return weighted_model(); }, *fit_.data, options_.num_ranks);
    } catch (const DataError& refused) {
      const auto error = std::current_exception();
      if (!findings_.collect("model", [&] { refuse_metric(refused); })) return;
      findings_.collect("data", [&] {
        refuse_several_labels();
        refuse_large_label(*fit_.train, Stage::train, "training");
        if (fit_.validation) refuse_large_label(*fit_.validation, Stage::val, "validation");
        std::rethrow_exception(error);
      });
    } catch (const Error& error) {
      const auto current = std::current_exception();
      findings_.collect("model", [&] {
        if (error.parts().place == kTrialOfTraining) refuse_step(error);
        if (error.parts().place == kTrialOfValidation) refuse_validation(error);
        std::rethrow_exception(current);
      });
    } catch (...) {
      findings_.collect("model", [error = std::current_exception()] { std::rethrow_exception(error); });
    }
  }

  // Throws Error for LibTorch's error in a step, with what the model was given.
  [[noreturn]] void refuse_step(const Error& error) {
    const Batch sample = prepared_sample(*fit_.data, fit_.train->dataset(), 0, Stage::train);
    const std::string name = fit_.text("model.name");
    const auto text = [](const at::Tensor& tensor) {
      return std::string(c10::toString(tensor.scalar_type())) + " " + shape_text(tensor.sizes().slice(1));
    };
    const std::size_t num_inputs = std::max<std::size_t>(sample.tensors().size(), 2) - 1;  // without labels
    const std::string inputs = joined(sample.tensors().first(num_inputs), ", ", text);
    const at::Tensor input = sample.tensors().front();
    throw step_error({.model = name,
                      .samples = inputs,
                      .takes_channels = fit_.values.contains("model.in_channels"),
                      .lacks_channels = input.dim() == 3,
                      .are_integers = at::isIntegralType(input.scalar_type(), /*includeBool=*/true),
                      .can_divide = fit_.values.contains("data.divisor")},
                     error.parts());
  }

  // The same in a validation step, whose samples are whole even if those of the training are patches.
  [[noreturn]] void refuse_validation(const Error& error) {
    ErrorParts parts = error.parts();
    parts.place = "model '" + fit_.text("model.name") + "', validation";
    if (fit_.values.contains("data.patch"))
      parts.remedy =
          "validation has whole fields: choose a model for fields of any size, such as "
          "unet_regressor, or remove data.patch";
    throw Error(parts);
  }

  // Throws ConfigError if the data has more classes than the model. In memory, the labels themselves count.
  void refuse_more_classes() {
    const std::int64_t num_classes = fit_.count("model.num_classes");
    if (num_classes == 0 || is_in_memory(*fit_.train)) return;
    const std::vector<std::string> names = fit_.data->class_names();
    const auto count = static_cast<std::int64_t>(names.size());
    if (count <= num_classes) return;
    throw ConfigError({.place = "model.num_classes",
                       .found = "the data has " + std::to_string(count) + " classes (" +
                                (count <= 20 ? list_names(names) : "the first is " + names.front()) +
                                "), but num_classes = " + std::to_string(num_classes),
                       .wanted = "at least " + std::to_string(count),
                       .remedy = "set num_classes to " + std::to_string(count)});
  }

  // Throws ConfigError if samples have several labels, and the model does not, or not as many classes.
  void refuse_several_labels() {
    const std::vector<std::string> names = fit_.data->class_names();
    const auto count = static_cast<std::int64_t>(names.size());
    if (count == 0 || fit_.train->is_endless() || fit_.train->dataset().size() == 0) return;
    const Batch sample = fit_.train->dataset().slice(0, 1);
    if (sample.tensors().size() < 2 || sample.labels().scalar_type() != at::kByte ||
        sample.labels().sizes() != at::IntArrayRef({1, count}))
      return;
    if (dynamic_cast<const Classifier*>(fit_.model.get()) != nullptr && !has_several_labels(*fit_.model))
      throw ConfigError({.place = "model.multi_label",
                         .found = "it is false, and a sample has several labels (data.label_separator)",
                         .wanted = "multi_label = true"});
    const std::int64_t num_classes = fit_.count("model.num_classes");
    if (num_classes == 0 || num_classes == count) return;
    throw ConfigError({.place = "model.num_classes",
                       .found = "the data has " + std::to_string(count) +
                                (count == 1 ? " class" : " classes") + " (" +
                                (count <= 20 ? list_names(names) : "the first is " + names.front()) +
                                "), but num_classes = " + std::to_string(num_classes),
                       .wanted = std::to_string(count) + ", a yes or no of each"});
  }

  // Throws ConfigError if a label is not below the num_classes of the model.
  void refuse_large_label(const DataLoader& loader, Stage stage, const std::string& name) {
    const std::int64_t num_classes = fit_.count("model.num_classes");
    const auto index = sample_with_largest_label(loader.dataset());
    if (num_classes == 0 || !index) return;
    const at::Tensor labels = prepared_sample(*fit_.data, loader.dataset(), *index, stage).labels();
    const bool are_classes = c10::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
    const std::optional<std::int64_t> ignored = fit_.config.class_loss.ignore_index;
    const std::int64_t label =
        are_classes
            ? (ignored ? labels.masked_fill(labels.eq(*ignored), 0) : labels).max().item<std::int64_t>()
            : 0;
    if (label < num_classes) return;
    const auto& range = stage == Stage::train ? fit_.data->options().train : fit_.data->options().val;
    throw ConfigError(
        {.place = "model.num_classes",
         .found = "class " + std::to_string(label) + " in the data (" + name + " sample " +
                  std::to_string(*index + (range ? (*range)[0] : 0)) +
                  ", counted from 0), but num_classes = " + std::to_string(num_classes),
         .wanted = "labels from 0 to " + std::to_string(num_classes - 1),
         .remedy = "set num_classes to " + std::to_string(label + 1) + ", or correct the labels"});
  }

  // Freezes what the run freezes, after the model has all its parameters. Returns false for an error.
  bool check_frozen() {
    const std::vector<std::string>& patterns = fit_.config.model.freeze;
    if (patterns.empty() || !fit_.trial.has_trained || !findings_.empty()) return true;
    return findings_.collect("model.freeze", [&] {
      fit_.trial.model->freeze_by_name(patterns);
      if (std::ranges::any_of(fit_.trial.model->parameters(), &at::Tensor::requires_grad)) return;
      throw ConfigError({.place = "model.freeze",
                         .found = "the patterns match all parameters",
                         .wanted = "at least one parameter that is trained"});
    });
  }

  void check_optimizer() {
    const std::shared_ptr<Module>& model = fit_.trial.model ? fit_.trial.model : fit_.model;
    if (!model || model->parameters().size() != model->parameter_names().size()) return;  // lazy layers
    if (dynamic_cast<const ManualModule*>(model.get()) != nullptr) return;
    std::unique_ptr<Optimizer> optimizer;
    findings_.collect("optimizer", [&] {
      optimizer = fit_.trainer.optimizer ? fit_.trainer.optimizer(ParameterGroups(*model))
                                         : model->configure_optimizers();
      if (!optimizer) optimizer = std::make_unique<Adam>(ParameterGroups(*model));  // as the trainer does
    });
    if (optimizer) check_repeated_loss(*optimizer), check_averaging(*optimizer);
    if (!optimizer || !fit_.trainer.schedule || !fit_.train) return;
    const RunLength length = length_of_run(fit_);
    const bool counts_epochs = fit_.trainer.schedule_interval == ScheduleInterval::epoch;
    findings_.collect("schedule", [&] {
      apply_schedule(fit_.trainer.schedule, {.total_steps = counts_epochs ? length.epochs : length.steps},
                     *optimizer);
    });
  }

  void check_averaging(const Optimizer& optimizer) {
    for (const auto& callback : fit_.trainer.callbacks)
      if (const auto* const swa = dynamic_cast<const StochasticWeightAveraging*>(callback.get()))
        findings_.collect("swa", [&] { swa->require_fit(with_fast_dev_run(fit_.trainer), optimizer); });
  }

  // Finds a model or optimizer that the checkpoint of a resumed run does not fit.
  void check_checkpoint() {
    if (!is_resumed() || !fit_.model || !fit_.is_data_complete) return;
    findings_.collect("model", [&] {
      set_input_transform(*fit_.model, fit_.data->input_transform());
      require_loadable(load_checkpoint(options_.checkpoint), fit_.model, fit_.trainer, kNumProgramCallbacks);
    });
  }

  void check_repeated_loss(const Optimizer& optimizer) {
    const RepeatedLossConditions conditions{
        .reduces = options_.num_ranks > 1 || fit_.trainer.gradient_shards > 1,
        .is_on_cpu = fit_.trainer.num_gpus == 0 || num_gpus() == 0};
    for (const ErrorParts& error : repeated_loss_errors(optimizer, fit_.trainer, conditions))
      findings_.collect("trainer", [&] { throw ConfigError(error); });
  }

  void add_warnings(const std::vector<std::string>& more) {
    warnings_.insert(warnings_.end(), more.begin(), more.end());
  }

  const FitCheckOptions options_;
  FitParts fit_;
  FitFindings findings_;
  bool has_wrong_shards_ = false, has_wrong_groups_ = false;
  bool is_drawn_ = false;  // the loaders have drawn random numbers
  std::vector<std::string> warnings_;
};

}  // namespace

CheckedFit check_fit(const LoadedConfig& loaded, const FitCheckOptions& options) {
  return FitCheck(loaded, options).run();
}

CheckedFit check_start(const LoadedConfig& loaded, const fs::path& checkpoint) {
  RunConfig& config = *loaded.config;
  const std::int64_t number = num_processes(/*place=*/std::nullopt, config);
  config.set_local_ranks(number);
  if (checkpoint.empty()) require_no_search(/*place=*/std::nullopt, config);
  return check_fit(loaded, {.checkpoint = checkpoint, .num_ranks = number});
}

}  // namespace kindling
