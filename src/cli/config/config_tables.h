#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/model_options.h"
#include "cli/config/run_options.h"
#include "kindling/cli/registry.h"
#include "kindling/config/document.h"
#include "kindling/config/printer.h"
#include "kindling/distributed/process_group.h"
#include "kindling/nn/class_loss.h"
#include "kindling/training/batch_size_finder.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/lr_finder.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/spike_options.h"
#include "kindling/training/stochastic_weight_averaging.h"

namespace kindling {

// [trainer]: the options of a Trainer, but without num_gpus the program chooses. Must not move while an
// OptionSet of it is in use.
struct TrainerTable {
  TrainerOptions options{};
  std::optional<std::int64_t> num_gpus{};

  // Returns the options that the config can set. num_gpus is not copied into `options`.
  OptionSet set();
};

// What a name selects, with its options.
template <class Product>
struct Choice {
  NameOption name{};
  std::optional<Maker<Product>> maker{};  // absent: there is no such table, or the name is unknown
};

// One of [[data.train_transforms]] or [[data.val_transforms]].
struct TransformChoice : Choice<std::shared_ptr<const Transform>> {
  std::shared_ptr<const Transform> made{};  // nullptr after an error
};

// A table without which something is off.
template <class Options>
struct OptionalTable {
  bool is_on = false;
  Options options{};
};
struct LrFinderTable : OptionalTable<LrFinderOptions> {
  LrFinderUse use{};
};

// The tables of a config, in the order of a printed config. Must not move: `sections` refers to the members.
struct ConfigTables {
  ConfigTables() = default;
  ConfigTables(const ConfigTables&) = delete;
  ConfigTables& operator=(const ConfigTables&) = delete;

  RunOptions run;
  ModelOptions model;
  ClassLossOptions class_loss;  // in [model]
  std::optional<Maker<std::shared_ptr<Module>>> model_maker;
  std::vector<Choice<std::shared_ptr<const Metric>>> metrics;  // of model.metrics
  Choice<Registry::DataFactory> data;
  DataOptions data_options;
  std::vector<TransformChoice> train_transforms, val_transforms;
  Choice<OptimizerFactory> optimizer{.name = {"adam"}};  // without a maker: the model's own
  OptimizerStartOptions optimizer_start;
  std::vector<GroupPattern> groups;  // [[optimizer.groups]]
  GroupPattern example_group;        // printed as a comment if there are none
  ScheduleOptions schedule;
  WarmupOptions warmup;
  std::optional<Maker<Registry::ScheduleFactory>> schedule_maker;  // absent: none
  std::vector<Choice<Registry::ScheduleFactory>> schedule_parts;
  TrainerTable trainer;
  DistributedOptions distributed;
  RestartOptions restarts;
  ModelCheckpointOptions checkpoint;
  ResumeOptions resume;
  OptionalTable<SpikeOptions> on_spike;
  OptionalTable<EarlyStoppingOptions> early_stopping;
  OptionalTable<ExponentialMovingAverageOptions> ema;
  OptionalTable<StochasticWeightAveragingOptions> swa;
  OptionalTable<BatchSizeFinderOptions> batch_finder;
  LrFinderTable lr_finder;
  std::vector<Maker<std::shared_ptr<Callback>>> callback_makers;
  std::vector<Maker<Registry::LoggerFactory>> logger_makers;
  RunFolderOptions folder;
  ProcessOptions process;
  std::vector<ConfigSection> sections;  // what text() prints

  // Returns the resolved config as TOML.
  std::string text() const { return print_config(sections); }
  // Returns the same without comments.
  std::string values_text() const { return print_values(sections); }
  // Returns the same, followed by every table that this config does not have, commented out.
  std::string text_with_optional_tables(const Registry& registry) const;
  // Returns the same by key: "trainer.max_epochs" and "3". Options without a value are omitted.
  std::map<std::string, std::string> values() const;
  // Returns those of them that all ranks of a data-parallel run must share: not paths, which may differ
  // between machines, nor what concerns one process.
  std::map<std::string, std::string> shared_values() const;
  // Returns the policy of an option; undecided for a key that this config does not have.
  OptionPolicy policy_of(const std::string& key) const;
  double* optimizer_lr();  // optimizer.lr; nullptr: there is none

  // Apply the result of a finder and print its table as a comment from then on. The learning rates of groups
  // keep their ratio to `instead_of`, the previous rate of the first group; without `lr` all are unchanged.
  void take_batch_size(std::int64_t batch_size);
  void take_lr(std::optional<double> lr, double instead_of);
  // Copies the results of the finders from the config of a run that goes on. It does not search again what
  // has been found.
  void keep_found(ConfigTables& former);
};

// Only a fit needs trainer.max_epochs or trainer.max_steps; `data` needs no model, and a custom loop needs
// no data.
enum class ConfigUse { fit, evaluation, data, custom_loop };

// Fills empty tables. Throws one ConfigError with all errors. `default_name` is used if the config has no
// name.
void read_tables(ConfigTables& tables, const ConfigDocument& document, const Registry& registry,
                 const std::string& default_name, ConfigUse use);

// A key whose value differs between two configs; "not set" if it has none.
struct ConfigChange {
  std::string key, was, now;
};

// Returns the changes sorted by key, without the keys that select where a run starts.
std::vector<ConfigChange> changes_between(const ConfigTables& was, const ConfigTables& now);

}  // namespace kindling
