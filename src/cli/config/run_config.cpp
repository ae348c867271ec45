#include "cli/config/run_config.h"

#include <ATen/Context.h>

#include <algorithm>
#include <utility>

#include "kindling/base/name_pattern.h"
#include "kindling/device/device.h"
#include "kindling/training/layer_freezing.h"

namespace kindling {
namespace {

constexpr std::uint64_t kDataSeedMask = 0x9e3779b97f4a7c15;  // an arbitrary value, unlikely as a seed

// Seeds LibTorch's CPU generator for the lifetime of this object, then restores its state.
class ScopedSeed {
 public:
  explicit ScopedSeed(std::uint64_t seed) : before_(generator_.get_state()) {
    generator_.set_current_seed(seed);
  }
  ~ScopedSeed() { generator_.set_state(before_); }
  ScopedSeed(const ScopedSeed&) = delete;
  ScopedSeed& operator=(const ScopedSeed&) = delete;

 private:
  at::Generator generator_ = at::globalContext().defaultGenerator(at::kCPU);
  at::Tensor before_;
};

std::shared_ptr<const Transform> composed(const std::vector<TransformChoice>& transforms) {
  if (transforms.empty()) return nullptr;
  std::vector<std::shared_ptr<const Transform>> parts;
  for (const TransformChoice& transform : transforms) parts.push_back(transform.made);
  return std::make_shared<Compose>(std::move(parts));
}

}  // namespace

Module::Monitor RunConfig::monitor_of(const Module& of) const {
  Module::Monitor monitor = of.monitor();
  if (!checkpoint.monitor.empty()) monitor.name = checkpoint.monitor;
  if (!checkpoint.mode.empty()) monitor.higher_is_better = checkpoint.mode == "max";
  return monitor;
}

std::shared_ptr<Module> RunConfig::make_model(std::vector<std::string>* warnings) const {
  auto made = make_unfrozen_model(warnings);
  if (!model.freeze.empty()) made->freeze_by_name(model.freeze);
  require_groups(*made);  // the optimizer would report them only during the fit
  return made;
}

void RunConfig::require_groups(Module& of) const {
  const auto names = of.parameter_names();
  for (const GroupPattern& group : groups) require_match(names, group.match, "optimizer.groups");
}

std::shared_ptr<Module> RunConfig::make_unfrozen_model(std::vector<std::string>* warnings) const {
  at::manual_seed(static_cast<std::uint64_t>(run.seed));
  auto made = model_maker->make();
  give_loss_options(class_loss, model.name, *made);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const std::string& name = model.metrics[i];
    if (warnings != nullptr && made->metric_of("val_" + name) != nullptr)
      warnings->push_back("model.metrics: '" + name + "' replaces the model's own metric of this name");
    made->add_metric(name, metrics[i].maker->make());
  }
  return made;
}

std::shared_ptr<DataModule> RunConfig::make_data(const std::function<void(DataModule&)>& before) const {
  const ScopedSeed numbers(data_seed());
  std::shared_ptr<DataModule> made = data_without_transforms();
  if (const StageTransforms made_transforms = transforms(); made_transforms.train || made_transforms.val)
    made = std::make_shared<TransformedData>(made, made_transforms);
  if (before) before(*made);
  made->prepare();
  return made;
}

std::shared_ptr<DataModule> RunConfig::make_untransformed_data() const {
  const ScopedSeed numbers(data_seed());
  std::shared_ptr<DataModule> made = data_without_transforms();
  made->prepare();
  return made;
}

StageTransforms RunConfig::transforms() const {
  return {.train = composed(train_transforms), .val = composed(val_transforms)};
}

std::shared_ptr<DataModule> RunConfig::data_without_transforms() const {
  DataOptions options = data_options;
  options.seed = run.seed;
  return data.maker->make()(options);
}

// The data draws the same random numbers in every process that reads the config, and does not affect those of
// the model, which start from the seed itself.
std::uint64_t RunConfig::data_seed() const noexcept {
  return static_cast<std::uint64_t>(run.seed) ^ kDataSeedMask;
}

std::string changed_loss_option(const ClassLossOptions& options) {
  ClassLossOptions copy = options, defaults;
  const auto set = value_texts(OptionSet::of(copy)), unset = value_texts(OptionSet::of(defaults));
  const auto found = std::ranges::mismatch(set, unset).in1;
  return found == set.end() ? "" : found->first;
}

void give_loss_options(const ClassLossOptions& options, const std::string& model_name, Module& model) {
  const std::string key = changed_loss_option(options);
  if (key.empty()) return;
  auto* const of_classes = dynamic_cast<ClassLossModel*>(&model);
  if (of_classes == nullptr)
    throw ConfigError({.place = "model." + key,
                       .found = "the model " + model_name + " is not a classifier",
                       .wanted = "a classifier, such as mlp or small_cnn"});
  try {
    of_classes->set_loss_options(options);
  } catch (const ConfigError& error) {
    ErrorParts parts = error.parts();
    parts.place = "model." + parts.place;
    throw ConfigError(parts);
  }
}

Schedule make_schedule(const ConfigTables& tables) {
  std::vector<Schedule> parts;
  for (const auto& part : tables.schedule_parts) parts.push_back(part.maker->make()({}));
  return with_warmup(tables.schedule_maker->make()(std::move(parts)), tables.warmup);
}

std::int64_t RunConfig::num_gpus() const noexcept {
  if (trainer.num_gpus) return *trainer.num_gpus;
  return trainer.options.require_gpus || kindling::num_gpus() >= num_local_ranks_ ? num_local_ranks_ : 0;
}

TrainerOptions RunConfig::trainer_options() const {
  TrainerOptions options = trainer.options;
  options.num_gpus = num_gpus();
  options.num_processes = 1;
  if (on_spike.is_on) options.on_spike = on_spike.options;
  for (const auto& maker : callback_makers) options.callbacks.push_back(maker.make());
  // After the user's callbacks: these see the records as the user's callbacks have changed them, and set the
  // learning rate last.
  if (early_stopping.is_on)
    options.callbacks.push_back(std::make_shared<EarlyStopping>(early_stopping.options));
  if (ema.is_on) options.callbacks.push_back(std::make_shared<ExponentialMovingAverage>(ema.options));
  if (swa.is_on) options.callbacks.push_back(std::make_shared<StochasticWeightAveraging>(swa.options));
  if (model.freeze_epochs > 0)
    options.callbacks.push_back(std::make_shared<LayerFreezing>(
        LayerFreezingOptions{.patterns = model.freeze, .epochs = model.freeze_epochs}));
  if (optimizer.maker) options.optimizer = optimizer.maker->make();
  if (!groups.empty())
    options.optimizer = [make = options.optimizer, groups = groups](const ParameterGroups& all) {
      return make(by_name(all, groups));
    };
  if (schedule_maker) {
    options.schedule = make_schedule(*this);
    options.schedule_interval =
        schedule.interval == "epoch" ? ScheduleInterval::epoch : ScheduleInterval::step;
  }
  if (optimizer_start.weight_decay_end)
    options.schedule = with_weight_decay_end(options.schedule, *optimizer_start.weight_decay_end);
  return options;
}

std::vector<std::shared_ptr<Logger>> RunConfig::make_loggers(const std::filesystem::path& run_folder) const {
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const auto& maker : logger_makers) loggers.push_back(maker.make()(run_folder));
  return loggers;
}

}  // namespace kindling
