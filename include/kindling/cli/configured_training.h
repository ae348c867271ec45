#pragma once

#include <memory>

#include "kindling/cli/registry.h"
#include "kindling/config/document.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// The objects that a config describes, for programs with a loop of their own.
struct ConfiguredTraining {
  std::shared_ptr<Module> model{};     // with the weights of model.init_weights and its class weights
  std::shared_ptr<DataModule> data{};  // prepared; nullptr for a config without [data]
  TrainerOptions options{};            // with the callbacks of the config, without loggers and process group
  DistributedOptions distributed{};
  ModelCheckpointOptions checkpoint{};  // [checkpoint]; `options` has no ModelCheckpoint
};

// Makes them as `kindling fit` does, and seeds LibTorch's generators for it. Neither [data] nor an end of the
// training is required; num_gpus is 0 or 1 if the config leaves it open. Weights that were saved with the
// transform of their inputs give it to the data. Keys of the program's run directory,
// processes and searches ([run], [batch_finder], [lr_finder], num_processes, checkpoint.resume) have no
// effect. Throws ConfigError, DataError and CheckpointError.
//
//   Registry registry;
//   register_builtin(registry);
//   auto [model, data, options, _, checkpoint] = make_training(ConfigDocument::load("digits.toml"),
//   registry); Trainer trainer(options); trainer.fit(model, *data);
ConfiguredTraining make_training(ConfigDocument document, const Registry& registry);

}  // namespace kindling
