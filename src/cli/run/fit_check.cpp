#include "cli/run/fit_check.h"

#include <ATen/Context.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/counted.h"
#include "base/joined.h"
#include "cli/config/unquoted.h"
#include "cli/run/fit_findings.h"
#include "cli/run/run_folder.h"
#include "cli/run/start_files.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/nn/classifier.h"
#include "kindling/device/device.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/schedule.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/lr_finder.h"
#include "kindling/training/trainer.h"
#include "loggers/metric_charts.h"
#include "nn/monitored_value.h"
#include "training/step/loss_per_step.h"
#include "training/step/repeated_loss.h"
#include "training/tuner/trial_batch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrial = "Trainer::fit";  // place of LibTorch's errors in try_batch()

// Returns the option's value without quotes; empty if it is absent.
std::string text_in(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "" : unquoted(found->second);
}

// Returns the option's value, a count; 0 if it is absent.
std::int64_t count_in(const std::map<std::string, std::string>& values, const std::string& key) {
  const std::string text = text_in(values, key);
  std::int64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

// True for values that the trainer adds to the records of epochs.
bool is_from_trainer(const std::string& name) {
  return is_machine_metric(name) || name == "lr" || name == "skipped_steps" || name.starts_with("grad_norm/");
}

// Callbacks of the user may add values to the records. A misspelled name gets a warning then.
bool has_own_callbacks(const TrainerOptions& options) {
  return std::ranges::any_of(options.callbacks, [](const auto& callback) {
    return callback->averaging() == nullptr && dynamic_cast<const EarlyStopping*>(callback.get()) == nullptr;
  });
}

at::Tensor random_state_of_cpu() { return at::globalContext().defaultGenerator(at::kCPU).get_state(); }

// "1,438"
std::string grouped_number(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

struct RunLength {
  std::int64_t epochs = 0, steps = 0;
};

// As the trainer computes it for schedules.
RunLength length_of_run(const TrainerOptions& options, const DataLoader& loader, std::int64_t num_ranks) {
  const std::int64_t samples = loader.num_samples(), batch = loader.options().batch_size * num_ranks;
  std::int64_t batches = loader.options().drop_last ? samples / batch : (samples + batch - 1) / batch;
  batches = std::min(batches, options.limit_train_batches.value_or(batches));
  if (options.overfit_batches) batches = std::min(options.overfit_batches->of(batches), batches);
  const std::int64_t window = options.accumulate_grad_batches,
                     per_epoch = std::max<std::int64_t>((batches + window - 1) / window, 1);
  std::int64_t steps = options.max_epochs.value_or(0) * per_epoch;
  if (options.max_steps) steps = steps > 0 ? std::min(steps, *options.max_steps) : *options.max_steps;
  return {.epochs = (steps + per_epoch - 1) / per_epoch, .steps = steps};
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

class FitCheck {
 public:
  FitCheck(const LoadedConfig& loaded, const FitCheckOptions& options)
      : config_(*loaded.config), options_(options), values_(config_.values()), findings_(loaded.document) {
    findings_.collect("trainer", [&] { trainer_ = config_.trainer_options(); });
  }

  CheckedFit run() {
    if (!options_.is_resumed && options_.tries_batch)
      findings_.collect("run.dir", [&] { require_usable(fs::path(config_.folder.dir) / config_.run.name); });
    check_devices();
    check_data();
    check_model();
    if (check_class_weights() && tries_batch()) check_batch();
    if (check_frozen()) check_optimizer();
    check_monitors();
    findings_.throw_if_any();
    if (!options_.is_resumed) add_warnings();
    if (is_drawn_ || (trial_.has_trained && has_custom_data())) {
      train_.reset(), validation_.reset(), data_.reset();  // two copies may not fit into memory
      data_ = config_.make_data();
    }
    return {.data = std::move(data_), .warnings = std::move(warnings_)};
  }

 private:
  bool tries_batch() const {
    return options_.tries_batch && !options_.is_resumed && !config_.batch_finder.is_on;
  }

  static bool is_in_memory(const DataLoader& loader) {
    return dynamic_cast<const TensorDataset*>(&loader.dataset()) != nullptr;
  }

  // A user's data set may have a state that changes with every batch, such as a generator of its own, and so
  // may a transform of batches in a user's data module.
  bool has_custom_data() const {
    Registry builtin;
    register_builtin(builtin);
    if (builtin.data_modules.has(config_.data_name())) return false;
    const auto is_custom = [](const std::shared_ptr<DataLoader>& loader) {
      return loader && !is_in_memory(*loader);
    };
    return trial_.has_transformed || is_custom(train_) || is_custom(validation_);
  }

  TrainerOptions options_on_cpu() const {
    TrainerOptions options = trainer_;
    options.num_gpus = 0;
    options.require_gpus = false;
    options.num_threads.reset();
    options.callbacks.clear();
    return options;
  }

  // Throws DeviceError if GPUs that the config requires are missing.
  void check_devices() {
    if (options_.num_ranks == 1 && trainer_.require_gpus)
      findings_.collect("trainer", [&] {
        TrainerOptions options = options_on_cpu();
        options.num_gpus = trainer_.num_gpus;
        options.require_gpus = true;
        const Trainer probe(options);
      });
  }

  // Data that draws random numbers for its loaders would draw them again in the fit, which therefore gets
  // new data that has not drawn yet.
  void check_data() {
    if (!findings_.collect("data", [&] { data_ = config_.make_data(); })) return;
    const at::Tensor before = random_state_of_cpu();
    findings_.collect("data", [&] {
      make_train_loader();
      if (!train_) throw DataError({.place = "data", .found = "the data has no train_dataloader()"});
    });
    const bool has_validation = findings_.collect("data", [&] { validation_ = data_->val_dataloader(); });
    if (train_ && has_validation && options_.num_ranks == 1)
      findings_.collect("trainer", [&] { Trainer(options_on_cpu()).prepare_data(*data_); });
    is_drawn_ = !at::equal(before, random_state_of_cpu());
    is_complete_ = findings_.empty();
  }

  // Throws ConfigError if `drop_last` leaves no batch.
  void make_train_loader() {
    try {
      train_ = data_->train_dataloader();
    } catch (const DataError& error) {
      ErrorParts parts = error.parts();
      if (!parts.found.starts_with("drop_last ")) throw;
      parts.place = "data.batch_size";
      throw ConfigError(parts);
    }
  }

  // Without the frozen parameters, whose patterns are checked one by one.
  std::shared_ptr<Module> unfrozen_model(std::vector<std::string>* warnings = nullptr) {
    const std::vector<std::string> patterns = std::exchange(config_.model.freeze, {});
    try {
      auto model = config_.make_model(warnings);
      config_.model.freeze = patterns;
      return model;
    } catch (...) {
      config_.model.freeze = patterns;
      throw;
    }
  }

  void check_model() {
    findings_.collect("model", [&] { model_ = unfrozen_model(&warnings_); });
    if (!model_) return;
    const std::vector<std::string>& patterns = config_.model.freeze;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      findings_.collect("model.freeze[" + std::to_string(i) + "]",
                        [&] { model_->freeze_by_name({patterns[i]}); });
    if (!options_.is_resumed && (config_.model.init_weights || config_.optimizer_start.init_state))
      findings_.collect("model.init_weights", [&] {
        if (data_) require_same_columns(config_, *data_);
        start_from_files(config_, *unfrozen_model());
      });
    if (!options_.is_resumed && config_.lr_finder.is_on)
      findings_.collect("lr_finder", [&] { require_one_lr(trainer_, *model_); });
  }

  // Returns false for an error.
  bool check_class_weights() {
    if (!model_ || !is_complete_) return true;
    return findings_.collect("model.class_weights", [&] {
      give_class_weights(config_, *model_, *data_);
      require_one_loss_per_step(*model_, trainer_, options_.num_ranks);
    });
  }

  // Returns a model for a trial.
  std::shared_ptr<Module> weighted_model() {
    auto model = unfrozen_model();
    if (const auto* const classifier = dynamic_cast<const Classifier*>(model_.get()))
      if (auto* const trial = dynamic_cast<Classifier*>(model.get()))
        trial->set_class_weights(classifier->class_weights());
    return model;
  }

  // Throws ConfigError for a metric that does not fit the labels or outputs.
  void refuse_metric(const DataError& error) const {
    const std::vector<std::string>& metrics = config_.model.metrics;
    const auto found = std::ranges::find(metrics, error.parts().place);
    if (found == metrics.end()) return;
    ErrorParts parts = error.parts();
    parts.place = "model.metrics[" + std::to_string(found - metrics.begin()) + "]";
    parts.found = "'" + *found + "': " + parts.found;
    throw ConfigError(parts);
  }

  void check_batch() {
    if (!model_ || !is_complete_) return;
    if (!findings_.collect("model.num_classes", [&] { refuse_more_classes(); })) return;
    try {
      trial_ = try_batch(
          trainer_, [this] { return weighted_model(); }, *data_);
    } catch (const DataError& refused) {
      const auto error = std::current_exception();
      if (!findings_.collect("model", [&] { refuse_metric(refused); })) return;
      findings_.collect("data", [&] {
        refuse_large_label(*train_, Stage::train, "training");
        if (validation_) refuse_large_label(*validation_, Stage::val, "validation");
        std::rethrow_exception(error);
      });
    } catch (const Error& error) {
      const auto current = std::current_exception();
      findings_.collect("model", [&] {
        if (error.parts().place == kTrial) refuse_step(error);
        std::rethrow_exception(current);
      });
    } catch (...) {
      findings_.collect("model", [error = std::current_exception()] { std::rethrow_exception(error); });
    }
  }

  // Throws Error for LibTorch's error in a step, with what the model was given.
  [[noreturn]] void refuse_step(const Error& error) {
    const Batch sample = prepared_sample(*data_, train_->dataset(), 0, Stage::train);
    const std::string name = text_in(values_, "model.name");
    const auto text = [](const at::Tensor& tensor) {
      return std::string(c10::toString(tensor.scalar_type())) + " " + shape_text(tensor.sizes().slice(1));
    };
    const std::size_t num_inputs = std::max<std::size_t>(sample.tensors().size(), 2) - 1;  // without labels
    const std::string inputs = joined(sample.tensors().first(num_inputs), ", ", text);
    throw step_error(
        {.model = name, .samples = inputs, .takes_channels = values_.contains("model.in_channels")},
        error.parts().found);
  }

  // Throws ConfigError if the data has more classes than the model. In memory, the labels themselves count.
  void refuse_more_classes() {
    const std::int64_t num_classes = count_in(values_, "model.num_classes");
    if (num_classes == 0 || is_in_memory(*train_)) return;
    const std::vector<std::string> names = data_->class_names();
    const auto count = static_cast<std::int64_t>(names.size());
    if (count <= num_classes) return;
    throw ConfigError({.place = "model.num_classes",
                       .found = "the data has " + std::to_string(count) + " classes (" +
                                (count <= 20 ? list_names(names) : "the first is " + names.front()) +
                                "), but num_classes = " + std::to_string(num_classes),
                       .wanted = "at least " + std::to_string(count),
                       .remedy = "set num_classes to " + std::to_string(count)});
  }

  // Throws ConfigError if a label is not below the num_classes of the model.
  void refuse_large_label(const DataLoader& loader, Stage stage, const std::string& name) {
    const std::int64_t num_classes = count_in(values_, "model.num_classes");
    const auto index = sample_with_largest_label(loader.dataset());
    if (num_classes == 0 || !index) return;
    const at::Tensor labels = prepared_sample(*data_, loader.dataset(), *index, stage).labels();
    const bool are_classes = c10::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
    const std::int64_t label = are_classes ? labels.max().item<std::int64_t>() : 0;
    if (label < num_classes) return;
    const auto& range = stage == Stage::train ? data_->options().train : data_->options().val;
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
    const std::vector<std::string>& patterns = config_.model.freeze;
    if (patterns.empty() || !trial_.has_trained || !findings_.empty()) return true;
    return findings_.collect("model.freeze", [&] {
      trial_.model->freeze_by_name(patterns);
      if (std::ranges::any_of(trial_.model->parameters(), &at::Tensor::requires_grad)) return;
      throw ConfigError({.place = "model.freeze",
                         .found = "the patterns match all parameters",
                         .wanted = "at least one parameter that is trained"});
    });
  }

  void check_optimizer() {
    const std::shared_ptr<Module>& model = trial_.model ? trial_.model : model_;
    if (!model || model->parameters().size() != model->parameter_names().size()) return;  // lazy layers
    if (dynamic_cast<const ManualModule*>(model.get()) != nullptr) return;
    std::unique_ptr<Optimizer> optimizer;
    findings_.collect("optimizer", [&] {
      optimizer =
          trainer_.optimizer ? trainer_.optimizer(ParameterGroups(*model)) : model->configure_optimizers();
    });
    if (optimizer) check_repeated_loss(*optimizer);
    if (!optimizer || !trainer_.schedule || !train_) return;
    const RunLength length = length_of_run(trainer_, *train_, options_.num_ranks);
    const bool counts_epochs = trainer_.schedule_interval == ScheduleInterval::epoch;
    findings_.collect("schedule", [&] {
      apply_schedule(trainer_.schedule, {.total_steps = counts_epochs ? length.epochs : length.steps},
                     *optimizer);
    });
  }

  void check_repeated_loss(const Optimizer& optimizer) {
    const RepeatedLossConditions conditions{.reduces = options_.num_ranks > 1 || trainer_.gradient_shards > 1,
                                            .is_on_cpu = trainer_.num_gpus == 0 || num_gpus() == 0};
    for (const ErrorParts& error : repeated_loss_errors(optimizer, trainer_, conditions))
      findings_.collect("trainer", [&] { throw ConfigError(error); });
  }

  void check_monitors() {
    if (!model_) return;
    check_monitor("checkpoint");
    if (text_in(values_, "early_stopping.strict") == "true") check_monitor("early_stopping");
    if (trainer_.schedule.plateau) check_monitor("schedule");
  }

  void check_monitor(const std::string& table) {
    const std::string key = table + ".monitor", name = text_in(values_, key),
                      mode = text_in(values_, table + ".mode");
    if (name.empty()) return check_default_monitor(table);
    const std::vector<std::string> names = logged_names();
    const bool is_known = std::ranges::find(names, name) != names.end() || is_from_trainer(name);
    if (!is_known && has_own_callbacks(trainer_))
      warn_of_misspelling(key, name, names);
    else if (!is_known && is_certain(table, name, names))
      findings_.add(key, "'" + key + "': the model logs no value '" + name + "'", names);
    else
      findings_.collect(key, [&] { monitor_of(name, mode, *model_, key); });
  }

  // Without a monitor, callbacks and schedules watch the value that the model names.
  void check_default_monitor(const std::string& table) {
    const std::string name = model_->monitor().name;
    std::vector<std::string> names = logged_names();
    if (config_.batch_finder.is_on)  // no batch was tried
      std::erase_if(names, [](const std::string& each) { return each.starts_with("val_"); });
    const bool is_known = std::ranges::find(names, name) != names.end() || is_from_trainer(name);
    const bool is_checked = is_complete_ && table != "checkpoint" && !has_own_callbacks(trainer_);
    if (!is_checked || is_known || can_validate()) return;
    findings_.add(table + ".monitor",
                  "'" + table + ".monitor': it is '" + name +
                      "', as the model says, but the run has no validation to log it",
                  names);
  }

  bool can_validate() const {
    return validation_ && (trainer_.limit_val_batches != 0 || trainer_.fast_dev_run);
  }

  void warn_of_misspelling(const std::string& key, const std::string& name,
                           const std::vector<std::string>& names) {
    const std::string guess = nearest(name, names);
    if (!guess.empty())
      warnings_.push_back(key + ": the model logs no value '" + name +
                          "', so a callback has to add it; did you mean '" + guess + "'?");
  }

  // The values of epoch records; if no batch could be tried, those that models usually have.
  std::vector<std::string> logged_names() const {
    if (trial_.has_trained) return trial_.names;
    std::vector<std::string> names{"train_loss", "val_loss"};
    if (const std::string own = model_->monitor().name; own != "val_loss") {
      if (own.starts_with("val_")) names.push_back("train_" + own.substr(4));
      names.push_back(own);
    }
    for (const std::string& metric : config_.model.metrics)
      for (const char* stage : {"train_", "val_"}) names.push_back(stage + metric);
    return names;
  }

  // False if the run may have a value that is not among `names`.
  bool is_certain(const std::string& table, const std::string& name,
                  const std::vector<std::string>& names) const {
    if (!trial_.has_trained) return !findings_.empty() && !nearest(name, names).empty();
    if (trial_.has_validated || !name.starts_with("val_")) return true;
    return table != "checkpoint" && !can_validate();  // a checkpoint without a value is only not the best
  }

  // Returns a warning for a mode that contradicts the model; else an empty text.
  std::string mode_warning(const std::string& table) const {
    const Module::Monitor own = model_->monitor();
    const std::string mode = text_in(values_, table + ".mode"), wanted = own.higher_is_better ? "max" : "min";
    const std::string monitor = text_in(values_, table + ".monitor");  // empty: the model's own
    if ((!monitor.empty() && monitor != own.name) || mode.empty() || mode == wanted) return "";
    return table + ".mode: it is \"" + mode + "\", but the model says that " +
           (own.higher_is_better ? "higher" : "lower") + " values of '" + own.name + "' are better";
  }

  // Returns a warning for class weights that the loss does not use, or with which it can be NaN.
  std::string class_weights_warning() const {
    const std::string key =
        config_.model.balanced_class_weights ? "model.balanced_class_weights" : "model.class_weights";
    const auto* const classifier = dynamic_cast<const Classifier*>(trial_.model.get());
    if (classifier == nullptr || !classifier->class_weights().defined() || !trial_.has_trained) return "";
    if (!classifier->has_used_class_weights())
      return key + ": the step of " + classifier->name() +
             " has a loss of its own, which does not use them; it must apply class_weights() itself";
    const at::Tensor zeros = classifier->class_weights().eq(0).nonzero();
    if (zeros.size(0) == 0) return "";
    return key + ": class " + std::to_string(zeros.flatten()[0].item<std::int64_t>()) +
           " has the weight 0; the loss of a batch that contains only such classes is NaN";
  }

  // The options of each `normalize` of a list of transforms.
  std::vector<std::string> normalizations(const std::string& list) const {
    std::vector<std::string> found;
    for (std::size_t i = 0;; ++i) {
      const std::string table = list + "[" + std::to_string(i) + "].";
      const std::string name = text_in(values_, table + "name");
      if (name.empty()) return found;
      if (name == "normalize")
        found.push_back(text_in(values_, table + "mean") + text_in(values_, table + "std"));
    }
  }

  // Returns a warning if training and validation see images of another scale; else an empty text.
  std::string scale_warning() const {
    if (normalizations("data.train_transforms") == normalizations("data.val_transforms")) return "";
    return "data.val_transforms: they normalize images otherwise than data.train_transforms, so validation "
           "and "
           "predictions see other values than the training";
  }

  void add_warnings() {
    warnings_.push_back(scale_warning());
    warnings_.push_back(class_weights_warning());
    for (const std::string& name : trial_.repeated_names)
      warnings_.push_back("'" + name +
                          "' is logged more than once in a step: each value replaces the one before");
    if (train_ && !trainer_.fast_dev_run) add_warnings_of_length();
    std::erase(warnings_, "");
  }

  void add_warnings_of_length() {
    if (!config_.batch_finder.is_on) warnings_.push_back(batch_size_warning(*train_));
    for (const char* table : {"checkpoint", "early_stopping", "schedule"})
      warnings_.push_back(mode_warning(table));
    if (config_.model.balanced_class_weights && text_in(values_, "data.sampler") == "balanced")
      warnings_.push_back(
          "model.balanced_class_weights: data.sampler = \"balanced\" is set, too, so the classes are "
          "balanced "
          "twice; remove one of them");
    warnings_.push_back(
        freezing_warning(config_.model.freeze_epochs, length_of_run(trainer_, *train_, options_.num_ranks)));
    warnings_.push_back(warmup_warning(count_in(values_, "schedule.warmup_steps"), trainer_,
                                       length_of_run(trainer_, *train_, options_.num_ranks)));
  }

  RunConfig& config_;
  const FitCheckOptions options_;
  const std::map<std::string, std::string> values_;
  FitFindings findings_;
  TrainerOptions trainer_;
  std::shared_ptr<DataModule> data_;
  std::shared_ptr<DataLoader> train_, validation_;
  std::shared_ptr<Module> model_;
  bool is_complete_ = false;  // the data
  bool is_drawn_ = false;     // the loaders have drawn random numbers
  TrialBatch trial_;
  std::vector<std::string> warnings_;
};

}  // namespace

CheckedFit check_fit(const LoadedConfig& loaded, const FitCheckOptions& options) {
  return FitCheck(loaded, options).run();
}

}  // namespace kindling
