#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "kindling/config/options.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// [trainer] in a config: the options of a Trainer, but without num_gpus the program chooses. Must not move
// while an OptionSet of it is in use.
struct TrainerTable {
  TrainerOptions options{};
  std::optional<std::int64_t> num_gpus{};

  // Returns the options that the config can set. num_gpus is not copied into `options`.
  OptionSet set() {
    const OptionSet of_trainer = OptionSet::of(options);
    OptionSet all;
    for (OptionRef option : of_trainer.refs()) {
      if (option.name == "num_gpus") {
        option.value = &num_gpus;
        option.notes.doc = "number of GPUs; absent: one if there is one, 0: the CPU, -1: all GPUs";
        option.notes.example = "1";
      }
      all.add(std::move(option));
    }
    return all;
  }
};

}  // namespace kindling
