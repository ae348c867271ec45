#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/config/document.h"
#include "kindling/config/printer.h"
#include "kindling/config/reader.h"
#include "kindling/program/registry.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// The keys at the top of a config.
struct RunOptions {
  std::int64_t seed = 0;
  std::string name{};

  static constexpr auto fields = kindling::fields(
      kindling::field("seed", &RunOptions::seed, {.doc = "of weights, shuffling and dropout", .min = 0}),
      kindling::field("name", &RunOptions::name,
                      {.doc = "of the run's folder; default: stem of the last config file"}));
};

// [model], beside the model's own options.
struct ModelOptions {
  std::string name{};
  std::optional<std::filesystem::path> init_weights{};
  std::string init_key{};
  std::vector<std::string> metrics{};

  static constexpr auto fields = kindling::fields(
      kindling::field("name", &ModelOptions::name, {.doc = "see `kindling list models`"}),
      kindling::field("init_weights", &ModelOptions::init_weights,
                      {.doc = "file to start from, .safetensors or .pt"}),
      kindling::field("init_key", &ModelOptions::init_key,
                      {.doc = "entry of the .pt that holds them, such as model; empty: it is all of it"}),
      kindling::field("metrics", &ModelOptions::metrics,
                      {.doc = "beside the model's own; see `kindling list metrics`"}));
};

// A name that chooses what else a table may hold.
struct NameOption {
  std::string name{};

  static constexpr auto fields =
      kindling::fields(kindling::field("name", &NameOption::name, {.doc = "see `kindling list`"}));
};

// [optimizer], beside the optimizer's own options.
struct OptimizerStartOptions {
  std::optional<std::filesystem::path> init_state{};
  std::string init_key{};

  static constexpr auto fields = kindling::fields(
      kindling::field("init_state", &OptimizerStartOptions::init_state,
                      {.doc = "state of Python's optimizer to start from, a .pt"}),
      kindling::field("init_key", &OptimizerStartOptions::init_key,
                      {.doc = "entry of the .pt that holds it, such as optimizer; empty: it is all of it"}));
};

// [schedule], beside the schedule's own options and the warm-up.
struct ScheduleOptions {
  std::string name = "constant";
  std::string interval = "step";

  static constexpr auto fields = kindling::fields(
      kindling::field("name", &ScheduleOptions::name, {.doc = "see `kindling list schedules`"}),
      kindling::field("interval", &ScheduleOptions::interval,
                      {.doc = "what the schedule counts", .choices = "step|epoch"}));
};

// [checkpoint], beside what a ModelCheckpoint can do.
struct ResumeOptions {
  std::string resume{};

  static constexpr auto fields = kindling::fields(kindling::field(
      "resume", &ResumeOptions::resume,
      {.doc = "last: with the newest run of this name; best: from its best checkpoint; or a run's "
              "folder or checkpoint"}));
};

// [run].
struct RunFolderOptions {
  std::string dir = "runs";
  bool jsonl = true;
  bool csv = true;

  static constexpr auto fields = kindling::fields(
      kindling::field("dir", &RunFolderOptions::dir, {.doc = "folder of all runs, from the current folder"}),
      kindling::field("jsonl", &RunFolderOptions::jsonl, {.doc = "write metrics.jsonl"}),
      kindling::field("csv", &RunFolderOptions::csv, {.doc = "write metrics.csv"}));
};

// Everything a config says about a run, checked, and the makers of the things it names.
class RunConfig {
 public:
  // Throws one ConfigError with everything that is wrong. `default_name` stands in for a name that is not
  // given.
  RunConfig(const ConfigDocument& document, const Registry& registry, const std::string& default_name);
  RunConfig(const RunConfig&) = delete;
  RunConfig& operator=(const RunConfig&) = delete;

  // The resolved config as TOML.
  std::string text() const { return print_config(tables_); }
  // The same key by key: "trainer.max_epochs" and "3". An option without a value is left out.
  std::map<std::string, std::string> values() const;

  // Seeds LibTorch's generators, then makes the model. Its init_weights are the caller's to load.
  std::shared_ptr<Module> make_model() const;
  // What tells how good an epoch is: [checkpoint]'s monitor and mode, else the model's.
  Module::Monitor monitor_of(const Module& model) const;
  std::shared_ptr<DataModule> make_data() const;
  // With the callbacks of the config, without loggers.
  TrainerOptions trainer_options() const;
  // Those of the config; a path of the run's folder.
  std::vector<std::shared_ptr<Logger>> make_loggers(const std::filesystem::path& run_folder) const;

  RunOptions run;
  ModelOptions model;
  OptimizerStartOptions optimizer_start;
  ModelCheckpointOptions checkpoint;
  ResumeOptions resume;
  RunFolderOptions folder;

 private:
  // Reads a table, which text() prints from then on.
  void table(ConfigReader& reader, const std::string& name, std::initializer_list<OptionSet> options);
  template <class Product>
  std::optional<Maker<Product>> choose(ConfigReader& reader, const std::string& table,
                                       const Catalog<Product>& catalog, const std::string& default_name);
  // Those that have a table of their own, PREFIX.NAME.
  template <class Product>
  std::vector<Maker<Product>> choose_all(ConfigReader& reader, const std::string& prefix,
                                         const Catalog<Product>& catalog);
  void check_name(ConfigReader& reader) const;
  void choose_metrics(ConfigReader& reader, const Registry& registry);

  NameOption data_name_, optimizer_name_{"adam"};
  DataOptions data_;
  ScheduleOptions schedule_;
  WarmupOptions warmup_;
  TrainerOptions trainer_;
  std::optional<Maker<std::shared_ptr<Module>>> model_maker_;
  std::optional<Maker<Registry::DataFactory>> data_maker_;
  std::optional<Maker<OptimizerFactory>> optimizer_maker_;           // absent: the model's own
  std::optional<Maker<Schedule>> schedule_maker_;                    // absent: none
  std::vector<Maker<std::shared_ptr<const Metric>>> metric_makers_;  // of model.metrics
  std::vector<Maker<std::shared_ptr<Callback>>> callback_makers_;
  std::vector<Maker<Registry::LoggerFactory>> logger_makers_;
  std::vector<ConfigSection> tables_;
};

}  // namespace kindling
