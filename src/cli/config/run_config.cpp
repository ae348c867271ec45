#include "cli/config/run_config.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/config/other_names.h"
#include "device/operator_threads.h"
#include "kindling/base/error.h"
#include "kindling/base/name_pattern.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/data/transformed_data.h"
#include "kindling/device/device.h"
#include "kindling/training/layer_freezing.h"

namespace kindling {
namespace {

// One table of an array of tables.
std::string item(const std::string& array, std::size_t i) { return array + "[" + std::to_string(i) + "]"; }

std::string key_of(const ConfigSection& section, const OptionRef& option) {
  return section.table.empty() ? option.name : section.table + "." + option.name;
}

// Reports keys that would have no effect. The config of a run lists all keys, so defaults do not count.
void check_model(const ModelOptions& model, ConfigReader& reader) {
  const std::pair<const char*, bool> init_keys[] = {{"model.init_prefix", !model.init_prefix.empty()},
                                                    {"model.init_map", !model.init_map.empty()},
                                                    {"model.init_strict", !model.init_strict}};
  for (const auto& [key, is_set] : init_keys)
    if (is_set && !model.init_weights)
      reader.error(key, "'" + std::string(key) + "' has no effect without 'model.init_weights'");
  if (model.freeze_epochs > 0 && model.freeze.empty())
    reader.error("model.freeze_epochs",
                 "'model.freeze_epochs' has no effect without 'model.freeze', which says what to freeze");
  if (model.balanced_class_weights && !model.class_weights.empty())
    reader.error("model.class_weights",
                 "'model.class_weights' and 'model.balanced_class_weights' are both set: remove one of them");
}

std::string without_digits(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

constexpr const char* kValTransforms = "data.val_transforms";

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

// For a name that the catalog lacks: has the options of the nearest one, or else those that all products
// have, so that errors in the rest of the table are reported, too. Other options of the products are skipped.
template <class Product>
Maker<Product> maker_near(ConfigReader& reader, const std::string& table, const Catalog<Product>& catalog,
                          const std::string& name) {
  const auto names = catalog.names();
  const std::string guess = nearest(name, names);
  std::map<std::string, std::size_t> num_products;  // by option
  std::vector<Maker<Product>> makers;
  for (const std::string& one : names) {
    const OptionSet options = makers.emplace_back(catalog.maker(one)).options();
    for (const OptionRef& option : options.refs()) ++num_products[option.name];
  }
  if (makers.empty()) return {.options = [] { return OptionSet(); }, .make = {}};
  const Maker<Product> owner = guess.empty() ? makers.front() : catalog.maker(guess);
  const OptionSet all = owner.options();
  OptionSet shared;
  for (const OptionRef& option : all.refs())
    if (!guess.empty() || num_products[option.name] == names.size()) {
      shared.add(option);
      num_products.erase(option.name);
    }
  for (const auto& [option, number] : num_products) reader.skip(table + "." + option);
  return {.options = [owner, shared] { return shared; }, .make = owner.make};
}

// Hints for options that only other products have: "an option of rmsprop and sgd, not of adamw".
template <class Product>
void name_other_owners(ConfigReader& reader, const std::string& table, const Catalog<Product>& catalog,
                       const std::string& chosen) {
  std::map<std::string, std::vector<std::string>> owners;  // by option
  for (const std::string& name : catalog.names()) {
    const Maker<Product> maker = catalog.maker(name);
    const OptionSet options = maker.options();
    for (const OptionRef& option : options.refs()) owners[option.name].push_back(name);
  }
  for (const auto& [option, names] : owners)
    if (std::find(names.begin(), names.end(), chosen) == names.end())
      reader.add_unknown_hint(table + "." + option,
                              "an option of " + list_names(names) + ", not of " + chosen);
}

}  // namespace

template <class Product>
std::optional<Maker<Product>> RunConfig::choose(ConfigReader& reader, const std::string& table,
                                                const Catalog<Product>& catalog,
                                                const std::string& default_name) {
  const std::string key = table + ".name";
  const std::string name = reader.read_name(key).value_or(default_name);
  const auto names = catalog.names();
  if (catalog.has(name)) {
    name_other_owners(reader, table, catalog, name);
    return catalog.maker(name);
  }
  std::string text =
      name.empty() ? "'" + key + "' is missing" : "unknown name '" + name + "' in '" + key + "'";
  if (table == "model" && !name.empty() && catalog.has("exported")) {
    const std::string guess = nearest(name, names);
    const std::string remedy = "a model exported from Python as .pt2 is trained with the name exported";
    if (guess.empty())
      text += " (" + remedy + ")";
    else if (without_digits(guess) == without_digits(name))  // resnet50 is not a typo of resnet18
      text += "; available: " + list_names(names) + "; " + remedy;
  }
  reader.error(key, text, names);
  return maker_near(reader, table, catalog, name);
}

template <class Product>
std::vector<Maker<Product>> RunConfig::choose_all(ConfigReader& reader, const std::string& prefix,
                                                  const Catalog<Product>& catalog) {
  std::vector<Maker<Product>> chosen;
  for (const std::string& name : catalog.names()) {
    if (!reader.has(prefix + "." + name)) continue;
    table(reader, prefix + "." + name, {chosen.emplace_back(catalog.maker(name)).options()});
  }
  return chosen;
}

void RunConfig::table(ConfigReader& reader, const std::string& name,
                      std::initializer_list<OptionSet> options) {
  ConfigSection& section = tables_.emplace_back(ConfigSection{.table = name});
  for (const OptionSet& set : options) {
    reader.read(name, set);
    section.options.append(set);
  }
}

RunConfig::RunConfig(const ConfigDocument& document, const Registry& registry,
                     const std::string& default_name, ConfigUse use) {
  ConfigReader reader(document);
  add_other_names(reader);
  table(reader, "", {OptionSet::of(run)});
  if (run.name.empty()) run.name = default_name;
  check_name(reader);
  const bool needs_model = use != ConfigUse::data || reader.has("model");
  if (needs_model && (model_maker_ = choose(reader, "model", registry.models, ""))) {
    table(reader, "model", {OptionSet::of(model), model_maker_->options()});
    check_model(model, reader);
    choose_metrics(reader, registry);
  }
  if ((data_maker_ = choose(reader, "data", registry.data_modules, "")))
    table(reader, "data", {OptionSet::of(data_name_), OptionSet::of(data_), data_maker_->options()});
  choose_transforms(reader, registry, "data.train_transforms", train_transforms_);
  choose_transforms(reader, registry, kValTransforms, val_transforms_);
  choose_optimizer(reader, registry);
  choose_schedule(reader, registry);
  table(reader, "trainer", {trainer_table_.set()});
  if (const auto& threads = trainer_.num_threads; threads && *threads > kMaxOperatorThreads)
    reader.error("trainer.num_threads", "'trainer.num_threads': expected an integer from 1 to " +
                                            std::to_string(kMaxOperatorThreads) + ", found " +
                                            std::to_string(*threads));
  if (use == ConfigUse::fit && !trainer_.max_epochs && !trainer_.max_steps &&
      !reader.has("trainer.max_epochs") && !reader.has("trainer.max_steps"))
    reader.error("trainer", "'trainer.max_epochs' or 'trainer.max_steps' is missing");
  table(reader, "distributed", {OptionSet::of(distributed), OptionSet::of(restarts)});
  table(reader, "checkpoint", {OptionSet::of(checkpoint), OptionSet::of(resume)});
  read_techniques(reader);
  read_finders(reader);
  callback_makers_ = choose_all(reader, "callbacks", registry.callbacks);
  logger_makers_ = choose_all(reader, "loggers", registry.loggers);
  table(reader, "run", {OptionSet::of(folder), OptionSet::of(process)});
  reader.finish();
}

void RunConfig::read_techniques(ConfigReader& reader) {
  const auto read = [&](const char* name, const OptionSet& options) {
    const bool is_on = reader.has(name);
    if (is_on) table(reader, name, {options});
    return is_on;
  };
  has_early_stopping_ = read("early_stopping", OptionSet::of(early_stopping_));
  has_ema_ = read("ema", OptionSet::of(ema_));
  has_swa_ = read("swa", OptionSet::of(swa_));
  if (has_swa_ && swa_.swa_lrs.empty() && !reader.has("swa.swa_lrs"))
    reader.error("swa", "'swa.swa_lrs' is missing: the final learning rate, such as [0.01]");
  if (!has_ema_ || !has_swa_) return;
  constexpr const char* kOne =
      "the model can have one average at a time: set it to false in [ema] or in [swa]";
  if (ema_.evaluate && swa_.evaluate) reader.error("swa.evaluate", std::string("'evaluate': ") + kOne);
  if (ema_.apply_at_end && swa_.apply_at_end)
    reader.error("swa.apply_at_end", std::string("'apply_at_end': ") + kOne);
}

void RunConfig::choose_optimizer(ConfigReader& reader, const Registry& registry) {
  if (!reader.has("optimizer")) return;
  optimizer_maker_ = choose(reader, "optimizer", registry.optimizers, optimizer_name_.name);
  if (!optimizer_maker_) return;
  table(reader, "optimizer",
        {OptionSet::of(optimizer_name_), optimizer_maker_->options(), OptionSet::of(optimizer_start)});
  groups_.resize(reader.num_tables("optimizer.groups"));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const std::string path = item("optimizer.groups", i);
    table(reader, path, {OptionSet::of(groups_[i])});
    if (!reader.has(path + ".match")) reader.error(path, "'" + path + ".match' is missing");
  }
  if (groups_.empty())
    tables_.push_back({.table = item("optimizer.groups", 0),
                       .doc = "values for the parameters that match; can be repeated",
                       .options = OptionSet::of(example_group_),
                       .enabled = false});
}

void RunConfig::choose_schedule(ConfigReader& reader, const Registry& registry) {
  if (!reader.has("schedule")) return;
  const std::size_t num_errors = reader.num_errors();
  schedule_maker_ = choose(reader, "schedule", registry.schedules, schedule_.name);
  if (!schedule_maker_) return;
  table(reader, "schedule", {OptionSet::of(schedule_), OptionSet::of(warmup_), schedule_maker_->options()});
  parts_.resize(reader.num_tables("schedule.parts"));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::string path = item("schedule.parts", i);
    if ((parts_[i].maker = choose(reader, path, registry.schedules, "")))
      table(reader, path, {OptionSet::of(parts_[i].name), parts_[i].maker->options()});
  }
  if (reader.num_errors() > num_errors) return;
  try {
    make_schedule();
  } catch (const ConfigError& error) {
    reader.error("schedule", error.what());
  }
}

void RunConfig::choose_metrics(ConfigReader& reader, const Registry& registry) {
  const auto names = registry.metrics.names();
  metrics_.resize(model.metrics.size());
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    const std::string &listed = model.metrics[i], path = "metrics." + listed;
    if (std::count(model.metrics.begin(), model.metrics.begin() + static_cast<std::ptrdiff_t>(i), listed) > 0)
      reader.error("model.metrics", "'" + listed + "' is listed twice in 'model.metrics'");
    else if (reader.has(path) || registry.metrics.has(listed))
      metrics_[i].maker = choose(reader, path, registry.metrics, listed);
    else
      reader.error("model.metrics[" + std::to_string(i) + "]",
                   "unknown name '" + listed + "' in 'model.metrics'", names);
    metrics_[i].name.name = listed;
    if (metrics_[i].maker)
      table(reader, path, {OptionSet::of(metrics_[i].name), metrics_[i].maker->options()});
  }
}

void RunConfig::choose_transforms(ConfigReader& reader, const Registry& registry, const std::string& array,
                                  std::vector<ListedTransform>& transforms) {
  transforms.resize(reader.num_tables(array));
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    const std::string path = item(array, i);
    const std::size_t num_errors = reader.num_errors();
    transforms[i].maker = choose(reader, path, registry.transforms, "");
    table(reader, path, {OptionSet::of(transforms[i].name), transforms[i].maker->options()});
    if (reader.num_errors() == num_errors) make(transforms[i], reader, path, array != kValTransforms);
  }
}

void RunConfig::make(ListedTransform& transform, ConfigReader& reader, const std::string& path,
                     bool may_be_random) try {
  transform.made = transform.maker->make();
  if (!may_be_random && transform.made->num_random() > 0)
    reader.error(path + ".name", "'" + path + ".name': '" + transform.name.name +
                                     "' is random, but validation and prediction must not be; it belongs in "
                                     "[[data.train_transforms]]");
} catch (const ConfigError& error) {
  reader.error(path, "'" + path + "': " + error.what());
}

std::shared_ptr<const Transform> RunConfig::composed(const std::vector<ListedTransform>& transforms) {
  if (transforms.empty()) return nullptr;
  std::vector<std::shared_ptr<const Transform>> parts;
  for (const ListedTransform& transform : transforms) parts.push_back(transform.made);
  return std::make_shared<Compose>(std::move(parts));
}

// The name becomes a directory.
void RunConfig::check_name(ConfigReader& reader) const {
  const bool is_path = run.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos ||
                       one_line(run.name) != run.name;
  if (is_path || run.name == "." || run.name == ".." || run.name.size() > 200)
    reader.error("name",
                 "'name' becomes a directory: expected at most 200 characters, without '/', '\\' and "
                 "control characters");
}

std::map<std::string, std::string> RunConfig::values() const {
  std::map<std::string, std::string> values;
  for (const ConfigSection& section : tables_) {
    if (!section.enabled) continue;
    for (const OptionRef& ref : section.options.refs()) {
      OptionSet alone;
      alone.add({ref.name, {}, ref.value});
      const std::string line = print_config(std::array{ConfigSection{.options = alone}});
      const std::string_view sign = " = ";
      const std::size_t at = line.find(sign);  // "# key =" has no value
      if (at == std::string::npos) continue;
      values[key_of(section, ref)] = line.substr(at + sign.size(), line.size() - at - sign.size() - 1);
    }
  }
  return values;
}

OptionPolicy RunConfig::policy_of(const std::string& key) const {
  for (const ConfigSection& section : tables_)
    for (const OptionRef& ref : section.options.refs())
      if (key_of(section, ref) == key) return ref.notes.policy;
  return {};
}

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
  for (const GroupPattern& group : groups_) require_match(names, group.match, "optimizer.groups");
}

std::shared_ptr<Module> RunConfig::make_unfrozen_model(std::vector<std::string>* warnings) const {
  at::manual_seed(static_cast<std::uint64_t>(run.seed));
  auto made = model_maker_->make();
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    const std::string& name = model.metrics[i];
    if (warnings != nullptr && made->metric_of("val_" + name) != nullptr)
      warnings->push_back("model.metrics: '" + name + "' replaces the model's own metric of this name");
    made->add_metric(name, metrics_[i].maker->make());
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
  return {.train = composed(train_transforms_), .val = composed(val_transforms_)};
}

std::shared_ptr<DataModule> RunConfig::data_without_transforms() const {
  DataOptions options = data_;
  options.seed = run.seed;
  return data_maker_->make()(options);
}

// The data draws the same random numbers in every process that reads the config, and does not affect those of
// the model, which start from the seed itself.
std::uint64_t RunConfig::data_seed() const noexcept {
  return static_cast<std::uint64_t>(run.seed) ^ kDataSeedMask;
}

Schedule RunConfig::make_schedule() const {
  std::vector<Schedule> parts;
  for (const SchedulePart& part : parts_) parts.push_back(part.maker->make()({}));
  return with_warmup(schedule_maker_->make()(std::move(parts)), warmup_);
}

std::int64_t RunConfig::num_gpus() const noexcept {
  if (trainer_table_.num_gpus) return *trainer_table_.num_gpus;
  return trainer_.require_gpus || kindling::num_gpus() >= num_local_ranks_ ? num_local_ranks_ : 0;
}

TrainerOptions RunConfig::trainer_options() const {
  TrainerOptions options = trainer_;
  options.num_gpus = num_gpus();
  options.num_processes = 1;
  for (const auto& maker : callback_makers_) options.callbacks.push_back(maker.make());
  // After the user's callbacks: these see the records as the user's callbacks have changed them, and set the
  // learning rate last.
  if (has_early_stopping_) options.callbacks.push_back(std::make_shared<EarlyStopping>(early_stopping_));
  if (has_ema_) options.callbacks.push_back(std::make_shared<ExponentialMovingAverage>(ema_));
  if (has_swa_) options.callbacks.push_back(std::make_shared<StochasticWeightAveraging>(swa_));
  if (model.freeze_epochs > 0)
    options.callbacks.push_back(std::make_shared<LayerFreezing>(
        LayerFreezingOptions{.patterns = model.freeze, .epochs = model.freeze_epochs}));
  if (optimizer_maker_) options.optimizer = optimizer_maker_->make();
  if (!groups_.empty())
    options.optimizer = [make = options.optimizer, groups = groups_](const ParameterGroups& all) {
      return make(by_name(all, groups));
    };
  if (schedule_maker_) {
    options.schedule = make_schedule();
    options.schedule_interval =
        schedule_.interval == "epoch" ? ScheduleInterval::epoch : ScheduleInterval::step;
  }
  return options;
}

std::vector<std::shared_ptr<Logger>> RunConfig::make_loggers(const std::filesystem::path& run_folder) const {
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const auto& maker : logger_makers_) loggers.push_back(maker.make()(run_folder));
  return loggers;
}

}  // namespace kindling
