#include "kindling/training/rollout_validation.h"

#include <utility>

#include "kindling/base/error.h"
#include "kindling/training/averaged_weights.h"

namespace kindling {
namespace {

WeightAveraging* evaluated_average(const Trainer& trainer) {
  for (const auto& callback : trainer.options().callbacks)
    if (WeightAveraging* const averaging = callback->averaging();
        averaging != nullptr && averaging->evaluates())
      return averaging;
  return nullptr;
}

}  // namespace

void RolloutValidation::on_fit_start(Trainer& trainer, Module&) {
  if (trainer.data() == nullptr || trainer.data()->rollouts().loader) return;
  throw ConfigError({.place = "RolloutValidation",
                     .found = "the data has no rollouts",
                     .wanted = "states in time, such as those of ArrayData with rollout_steps"});
}

void RolloutValidation::on_epoch_record(Trainer& trainer, Module&, Record& record) {
  if (!has_validated_ || trainer.data() == nullptr) return;
  const AveragedWeights averaged(trainer, evaluated_average(trainer));
  const RolloutErrors errors = rollout_errors(trainer, trainer.model(), *trainer.data());
  for (auto& [name, value] : named_values(errors)) record.values.emplace_back(std::move(name), value);
}

}  // namespace kindling
