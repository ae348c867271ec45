#include "training/make_step.h"

#include "training/anomaly_step.h"
#include "training/eager_step.h"
#include "training/manual_step.h"
#include "training/profiled_step.h"
#include "training/watched_step.h"

namespace kindling {

std::unique_ptr<Step> make_step(TrainState& state, TrainerInfo& info, const TrainerOptions& options,
                                const Callbacks& callbacks) {
  std::unique_ptr<Step> step;
  if (dynamic_cast<const ManualModule*>(state.model.get()) != nullptr)
    step = std::make_unique<ManualStep>(state, info, options, callbacks);
  else
    step = std::make_unique<EagerStep>(state, info, options, callbacks);
  step = std::make_unique<WatchedStep>(std::move(step), state);
  if (options.detect_anomaly) step = std::make_unique<AnomalyStep>(std::move(step), state);
  if (options.profile && !options.profile_dir.empty())
    step = std::make_unique<ProfiledStep>(std::move(step), state, options);
  return step;
}

}  // namespace kindling
