#include "training/make_step.h"

#include "training/eager_step.h"
#include "training/manual_step.h"
#include "training/watched_step.h"

namespace kindling {

std::unique_ptr<Step> make_step(TrainState& state, TrainerInfo& info, const TrainerOptions& options,
                                const Callbacks& callbacks) {
  std::unique_ptr<Step> step;
  if (dynamic_cast<const ManualModule*>(state.model.get()) != nullptr)
    step = std::make_unique<ManualStep>(state, info, options, callbacks);
  else
    step = std::make_unique<EagerStep>(state, info, options, callbacks);
  return std::make_unique<WatchedStep>(std::move(step), state);
}

}  // namespace kindling
