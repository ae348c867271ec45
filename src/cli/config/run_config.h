#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/model_options.h"
#include "cli/config/run_options.h"
#include "cli/config/trainer_table.h"
#include "kindling/cli/registry.h"
#include "kindling/config/document.h"
#include "kindling/config/printer.h"
#include "kindling/config/reader.h"
#include "kindling/data/transformed_data.h"
#include "kindling/distributed/process_group.h"
#include "kindling/training/batch_size_finder.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/lr_finder.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/stochastic_weight_averaging.h"

namespace kindling {

// Only a fit needs trainer.max_epochs or trainer.max_steps; `data` needs no model.
enum class ConfigUse { fit, evaluation, data };

// A validated config of a run, and factories of the objects that it names.
class RunConfig {
 public:
  // Throws one ConfigError with all errors. `default_name` is used if the config has no name.
  RunConfig(const ConfigDocument& document, const Registry& registry, const std::string& default_name,
            ConfigUse use = ConfigUse::fit);
  RunConfig(const RunConfig&) = delete;
  RunConfig& operator=(const RunConfig&) = delete;

  // Returns the resolved config as TOML.
  std::string text() const { return print_config(tables_); }
  // Returns the same without comments.
  std::string values_text() const { return print_values(tables_); }
  // Returns the same, followed by every table that this config does not have, commented out.
  std::string text_with_optional_tables(const Registry& registry) const;
  // Returns the same by key: "trainer.max_epochs" and "3". Options without a value are omitted.
  std::map<std::string, std::string> values() const;
  // Returns the policy of an option; undecided for a key that this config does not have.
  OptionPolicy policy_of(const std::string& key) const;

  // Seeds LibTorch's generators and creates the model, without init_weights. Adds to `warnings`, if given.
  std::shared_ptr<Module> make_model(std::vector<std::string>* warnings = nullptr) const;
  // Returns the same before its parameters are frozen and the patterns of [[optimizer.groups]] are checked.
  std::shared_ptr<Module> make_unfrozen_model(std::vector<std::string>* warnings = nullptr) const;
  // Throws ConfigError for a pattern of [[optimizer.groups]] that matches no parameter.
  void require_groups(Module& model) const;
  // Returns the monitored value: the monitor and mode of [checkpoint], else those of the model.
  Module::Monitor monitor_of(const Module& model) const;
  // Returns prepared data; `before` is called before that.
  std::shared_ptr<DataModule> make_data(const std::function<void(DataModule&)>& before = {}) const;
  // Return the same without [[data.train_transforms]] and [[data.val_transforms]], and these; null pointers
  // without them.
  std::shared_ptr<DataModule> make_untransformed_data() const;
  StageTransforms transforms() const;
  const std::string& data_name() const noexcept { return data_name_.name; }
  // trainer.num_processes and trainer.num_gpus, which determine how many processes the program starts for a
  // fit. Without the key, the number is that of the ranks on this machine if each can have a GPU (or
  // require_gpus is set), else 0.
  std::int64_t num_processes() const noexcept { return trainer_.num_processes; }
  std::int64_t num_gpus() const noexcept;
  bool has_num_gpus() const noexcept { return trainer_table_.num_gpus.has_value(); }
  void set_local_ranks(std::int64_t number) noexcept { num_local_ranks_ = number; }
  // Returns the options for a single process, with the callbacks of the config and without loggers.
  TrainerOptions trainer_options() const;
  // Creates the loggers of the config. Takes the run directory.
  std::vector<std::shared_ptr<Logger>> make_loggers(const std::filesystem::path& run_folder) const;

  // Apply the result of a finder and print its table as a comment from then on. The learning rates of groups
  // keep their ratio to `instead_of`, the previous rate of the first group; without `lr` all are unchanged.
  void take_batch_size(std::int64_t batch_size);
  void take_lr(std::optional<double> lr, double instead_of);
  void take_num_threads(std::int64_t num_threads) { trainer_.num_threads = num_threads; }
  // Copies the results of the finders from the config of a resumed run, which does not search again.
  void keep_found(RunConfig& former);

  // [lr_finder] and [batch_finder].
  struct FinderTable {
    bool is_on = false;  // a search is requested
  };
  struct LrFinderTable : FinderTable {
    LrFinderOptions options{};
    LrFinderUse use{};
  };
  struct BatchFinderTable : FinderTable {
    BatchSizeFinderOptions options{};
  };

  LrFinderTable lr_finder;
  BatchFinderTable batch_finder;
  RunOptions run;
  ModelOptions model;
  OptimizerStartOptions optimizer_start;
  ModelCheckpointOptions checkpoint;
  ResumeOptions resume;
  RunFolderOptions folder;
  ProcessOptions process;
  DistributedOptions distributed;
  RestartOptions restarts;

 private:
  std::shared_ptr<DataModule> data_without_transforms() const;
  std::uint64_t data_seed() const noexcept;
  // Reads a table; text() prints it from then on.
  void table(ConfigReader& reader, const std::string& name, std::initializer_list<OptionSet> options);
  template <class Product>
  std::optional<Maker<Product>> choose(ConfigReader& reader, const std::string& table,
                                       const Catalog<Product>& catalog, const std::string& default_name);
  // Creates the objects that have a table PREFIX.NAME.
  template <class Product>
  std::vector<Maker<Product>> choose_all(ConfigReader& reader, const std::string& prefix,
                                         const Catalog<Product>& catalog);
  // [early_stopping], [ema] and [swa], which are off without their tables.
  void read_techniques(ConfigReader& reader);
  void read_finders(ConfigReader& reader);
  void require_one_lr(ConfigReader& reader);
  double* optimizer_lr();  // optimizer.lr; nullptr: there is none
  void end_search(FinderTable& finder, const std::string& name);
  void check_name(ConfigReader& reader) const;
  void choose_metrics(ConfigReader& reader, const Registry& registry);
  void choose_optimizer(ConfigReader& reader, const Registry& registry);
  void choose_schedule(ConfigReader& reader, const Registry& registry);
  Schedule make_schedule() const;

  // One of [[schedule.parts]].
  struct ListedMetric {
    NameOption name{};
    std::optional<Maker<std::shared_ptr<const Metric>>> maker{};
  };
  struct SchedulePart {
    NameOption name{};
    std::optional<Maker<Registry::ScheduleFactory>> maker{};
  };

  // One of [[data.train_transforms]] or [[data.val_transforms]].
  struct ListedTransform {
    NameOption name{};
    std::optional<Maker<std::shared_ptr<const Transform>>> maker{};
    std::shared_ptr<const Transform> made{};  // nullptr after an error
  };
  void choose_transforms(ConfigReader& reader, const Registry& registry, const std::string& array,
                         std::vector<ListedTransform>& transforms);
  static void make(ListedTransform& transform, ConfigReader& reader, const std::string& path,
                   bool may_be_random);
  static std::shared_ptr<const Transform> composed(const std::vector<ListedTransform>& transforms);

  NameOption data_name_, optimizer_name_{"adam"};
  std::vector<ListedTransform> train_transforms_, val_transforms_;
  std::vector<GroupPattern> groups_;  // [[optimizer.groups]]
  GroupPattern example_group_;        // printed as a comment if there are none
  std::vector<SchedulePart> parts_;
  DataOptions data_;
  ScheduleOptions schedule_;
  WarmupOptions warmup_;
  TrainerTable trainer_table_;
  TrainerOptions& trainer_ = trainer_table_.options;
  std::int64_t num_local_ranks_ = 1;
  EarlyStoppingOptions early_stopping_;
  ExponentialMovingAverageOptions ema_;
  StochasticWeightAveragingOptions swa_;
  bool has_early_stopping_ = false, has_ema_ = false, has_swa_ = false;
  std::optional<Maker<std::shared_ptr<Module>>> model_maker_;
  std::optional<Maker<Registry::DataFactory>> data_maker_;
  std::optional<Maker<OptimizerFactory>> optimizer_maker_;          // absent: the model's own
  std::optional<Maker<Registry::ScheduleFactory>> schedule_maker_;  // absent: none
  std::vector<ListedMetric> metrics_;                               // of model.metrics
  std::vector<Maker<std::shared_ptr<Callback>>> callback_makers_;
  std::vector<Maker<Registry::LoggerFactory>> logger_makers_;
  std::vector<ConfigSection> tables_;
};

}  // namespace kindling
