#pragma once

#include <cstdint>
#include <memory>

#include "kindling/data/data_module.h"
#include "kindling/training/trainer_options.h"
#include "program/commands.h"
#include "program/loaded_config.h"

namespace kindling {

// `kindling bench step`: the steps of a config's training, as `fit` would make them, without a run.
class StepBench {
 public:
  // Refuses what `fit` refuses, and finds the number of threads as it does.
  explicit StepBench(const CommandContext& context);

  std::int64_t num_threads() const;  // of operators
  BenchReport measure() const;

 private:
  std::shared_ptr<Module> make_model() const;

  const BenchRequest& request_;
  LoadedConfig loaded_;
  std::shared_ptr<DataModule> data_;
  TrainerOptions trainer_;
};

}  // namespace kindling
