#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/config/config_tables.h"
#include "kindling/data/transformed_data.h"

namespace kindling {

// Returns the schedule of the config, which must have one.
Schedule make_schedule(const ConfigTables& tables);

// Returns the first option that is not its default; empty if there is none.
std::string changed_loss_option(const ClassLossOptions& options);

// Sets the keys of [model] that change the loss. Throws ConfigError for a model without such a loss.
void give_loss_options(const ClassLossOptions& options, const std::string& model_name, Module& model);

// A validated config of a run: its tables, and factories of the objects that they name.
class RunConfig : public ConfigTables {
 public:
  // Reads the tables as read_tables() does.
  RunConfig(const ConfigDocument& document, const Registry& registry, const std::string& default_name,
            ConfigUse use = ConfigUse::fit) {
    read_tables(*this, document, registry, default_name, use);
  }

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
  // trainer.num_gpus, which determines with trainer.num_processes how many processes the program starts for a
  // fit. Without the key, the number is that of the ranks on this machine if each can have a GPU (or
  // require_gpus is set), else 0.
  std::int64_t num_gpus() const noexcept;
  void set_local_ranks(std::int64_t number) noexcept { num_local_ranks_ = number; }
  // Returns the options for a single process, with the callbacks of the config and without loggers.
  TrainerOptions trainer_options() const;
  // Creates the loggers of the config. Takes the run directory.
  std::vector<std::shared_ptr<Logger>> make_loggers(const std::filesystem::path& run_folder) const;

 private:
  std::shared_ptr<DataModule> data_without_transforms() const;
  std::uint64_t data_seed() const noexcept;

  std::int64_t num_local_ranks_ = 1;
};

}  // namespace kindling
