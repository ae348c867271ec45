#include "cli/config/config_topics.h"

#include <algorithm>

#include "cli/config/command_line.h"
#include "cli/config/config_tables.h"
#include "kindling/config/printer.h"

namespace kindling {

template <class... Options>
void ConfigTopics::add_options(ConfigTopic& topic) {
  const auto add_one = [&](auto owned) {
    topic.options.append(OptionSet::of(*owned));
    owned_.push_back(owned);
  };
  (add_one(std::make_shared<Options>()), ...);
}

template <class Product>
void ConfigTopics::add_entries(ConfigTopic& topic, const Catalog<Product>& catalog) {
  for (const std::string& name : catalog.names()) {
    const auto owned = std::make_shared<Maker<Product>>(catalog.maker(name));
    topic.entries.push_back({.name = name, .doc = catalog.doc(name), .options = owned->options()});
    owned_.push_back(owned);
  }
}

ConfigTopics::ConfigTopics(const Registry& registry) {
  add_options<RunOptions>(add({.table = "",
                               .title = "Top-level keys",
                               .description = "These keys come before the first table of a file."}));
  add_products(registry);
  add_optimization(registry);
  add_training();
  add_entries(
      add({.table = "callbacks",
           .title = "Callbacks",
           .description = "A table `[callbacks.NAME]` adds a callback that the program has registered.",
           .without_entries = "This program registers no callbacks."}),
      registry.callbacks);
  add_entries(add({.table = "loggers",
                   .title = "Loggers",
                   .description = "A table `[loggers.NAME]` adds a logger that the program has registered.",
                   .without_entries = "This program registers no loggers."}),
              registry.loggers);
  add_options<RunFolderOptions, ProcessOptions>(
      add({.table = "run",
           .title = "Run directory and process",
           .description = "`[run]` controls the output files and settings of the process."}));
}

void ConfigTopics::add_products(const Registry& registry) {
  ConfigTopic& models = add({.table = "model",
                             .title = "Models",
                             .description = "`[model]` names the model. These keys exist for every model:"});
  add_options<ModelOptions, ClassLossOptions>(models);
  add_entries(models, registry.models);
  add_entries(
      add({.table = "metrics",
           .title = "Metrics",
           .description =
               "`model.metrics` lists metrics, and a table `[metrics.NAME]` sets the options of one of them. "
               "An entry\nof the list may also be a name of your choice, if the key `name` in its table "
               "names "
               "the metric."}),
      registry.metrics);
  ConfigTopic& data =
      add({.table = "data",
           .title = "Data sets",
           .description = "`[data]` names the data set. These keys exist for every data set:"});
  add_options<NameOption, DataOptions>(data);
  add_entries(data, registry.data_modules);
  ConfigTopic& transforms =
      add({.table = "data.train_transforms",
           .title = "Image transforms",
           .description =
               "Each `[[data.train_transforms]]` names a transform that changes the training images, in this "
               "order, and\neach `[[data.val_transforms]]` one for validation, testing, and prediction. They "
               "change whole batches on the\ndevice, after the bytes of the images have become numbers.",
           .is_array = true});
  add_options<NameOption>(transforms);
  add_entries(transforms, registry.transforms);
}

void ConfigTopics::add_optimization(const Registry& registry) {
  ConfigTopic& optimizers = add(
      {.table = "optimizer",
       .title = "Optimizers",
       .description = "`[optimizer]` names the optimizer. Without this table, the model chooses it. These "
                      "keys exist for every optimizer:"});
  const auto name = std::make_shared<NameOption>(NameOption{"adam"});
  owned_.push_back(name);
  optimizers.options.append(OptionSet::of(*name));
  add_options<OptimizerStartOptions>(optimizers);
  add_entries(optimizers, registry.optimizers);
  add_options<GroupPattern>(add(
      {.table = "optimizer.groups",
       .title = "Parameter groups",
       .description = "Each `[[optimizer.groups]]` sets values for the parameters that match its pattern.",
       .is_array = true}));
  ConfigTopic& schedules =
      add({.table = "schedule",
           .title = "Schedules",
           .description = "`[schedule]` names the learning rate schedule. Each `[[schedule.parts]]` of a "
                          "`sequence` has a\n`name` and the options of its schedule. These keys exist for "
                          "every schedule:"});
  add_options<ScheduleOptions, WarmupOptions>(schedules);
  add_entries(schedules, registry.schedules);
}

void ConfigTopics::add_training() {
  const auto trainer = std::make_shared<TrainerTable>();
  owned_.push_back(trainer);
  add({.table = "trainer",
       .title = "Trainer",
       .description = "`[trainer]` controls the run. In C++, these are the members of `TrainerOptions`.",
       .options = trainer->set()});
  add_options<DistributedOptions, RestartOptions>(
      add({.table = "distributed",
           .title = "Distributed training",
           .description = "`[distributed]` controls data-parallel training."}));
  add_options<ModelCheckpointOptions, ResumeOptions>(
      add({.table = "checkpoint",
           .title = "Checkpoints",
           .description = "`[checkpoint]` controls when checkpoints are saved and which are kept."}));
  add_options<SpikeOptions>(add({.table = "on_spike",
                                 .title = "Loss spikes",
                                 .description = "`[on_spike]` tests the loss of every step for spikes."}));
  add_options<EarlyStoppingOptions>(add({.table = "early_stopping",
                                         .title = "Early stopping",
                                         .description = "`[early_stopping]` turns early stopping on."}));
  add_options<ExponentialMovingAverageOptions>(
      add({.table = "ema",
           .title = "Exponential moving average",
           .description = "`[ema]` turns weight averaging by EMA on."}));
  add_options<StochasticWeightAveragingOptions>(
      add({.table = "swa",
           .title = "Stochastic weight averaging",
           .description = "`[swa]` turns weight averaging by SWA on."}));
  add_options<LrFinderOptions, LrFinderUse>(
      add({.table = "lr_finder",
           .title = "Learning-rate finder",
           .description = "`[lr_finder]` searches for a learning rate before the run."}));
  add_options<BatchSizeFinderOptions>(
      add({.table = "batch_finder",
           .title = "Batch-size finder",
           .description = "`[batch_finder]` searches for the largest batch size before the run."}));
}

namespace {

// "adam" for [optimizer]; empty if the name must be set.
std::string default_product(const ConfigTopic& topic) {
  for (const OptionRef& option : topic.options.refs())
    if (option.name == "name") return unquoted(describe(option).default_value);
  return {};
}

}  // namespace

std::vector<ConfigKey> config_keys(const ConfigTopics& topics) {
  std::vector<ConfigKey> keys;
  for (const ConfigTopic& topic : topics.all()) {
    if (topic.is_array) continue;
    const std::string prefix = topic.table.empty() ? "" : topic.table + ".";
    for (const OptionRef& option : topic.options.refs())
      keys.push_back({.path = prefix + option.name, .owner = "", .topic = &topic, .option = &option});
    const bool has_own_tables =
        topic.table == "metrics" || topic.table == "callbacks" || topic.table == "loggers";
    for (const ConfigTopic::Entry& entry : topic.entries)
      for (const OptionRef& option : entry.options.refs())
        keys.push_back({.path = prefix + (has_own_tables ? entry.name + "." : "") + option.name,
                        .owner = entry.name,
                        .topic = &topic,
                        .option = &option});
  }
  return keys;
}

std::vector<ConfigKey> config_keys(const ConfigTopics& topics, std::string_view path) {
  std::vector<ConfigKey> keys = config_keys(topics);
  std::erase_if(keys, [&](const ConfigKey& key) { return key.path != path; });
  std::stable_partition(keys.begin(), keys.end(), [](const ConfigKey& key) {
    return key.owner.empty() || key.owner == default_product(*key.topic);
  });
  return keys;
}

std::vector<std::string> config_key_names(const Registry& registry) {
  const ConfigTopics topics(registry);
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys(topics))
    if (std::find(names.begin(), names.end(), key.path) == names.end()) names.push_back(key.path);
  return names;
}

}  // namespace kindling
