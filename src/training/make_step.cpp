#include "training/make_step.h"

#include <string>

#include "kindling/base/log.h"
#include "training/anomaly_step.h"
#include "training/automatic_step.h"
#include "training/manual_step.h"
#include "training/profiled_step.h"
#include "training/recorded_gradients.h"
#include "training/watched_step.h"

namespace kindling {

namespace {

// Why the steps of a training are not recorded, whatever they do; empty: they may be.
std::string why_not_recorded(const TrainState& state, const TrainerOptions& options) {
  if (!state.log.device().is_cpu()) return "only those on the CPU are";
  if (options.detect_anomaly) return "detect_anomaly looks at each operator";
  if (options.profile) return "profile looks at each operator";
  return {};
}

std::unique_ptr<BatchGradients> make_gradients(TrainState& state, TrainerInfo& info,
                                               const TrainerOptions& options) {
  const bool is_asked_for = options.step_graph == "on";
  if (is_asked_for || (options.step_graph == "auto" && state.model->static_step())) {
    const std::string reason = why_not_recorded(state, options);
    if (reason.empty()) return std::make_unique<RecordedGradients>(state, info, options);
    if (is_asked_for) log_warning("step_graph: steps are not recorded: " + reason);
  }
  return std::make_unique<EagerGradients>(state, info);
}

}  // namespace

std::unique_ptr<Step> make_step(TrainState& state, TrainerInfo& info, const TrainerOptions& options,
                                const Callbacks& callbacks) {
  std::unique_ptr<Step> step;
  if (dynamic_cast<const ManualModule*>(state.model.get()) != nullptr) {
    if (options.step_graph == "on") log_warning("step_graph: the steps of a ManualModule are not recorded");
    step = std::make_unique<ManualStep>(state, info, options, callbacks);
  } else {
    step = std::make_unique<AutomaticStep>(make_gradients(state, info, options), state, info, options,
                                           callbacks);
  }
  step = std::make_unique<WatchedStep>(std::move(step), state);
  if (options.detect_anomaly) step = std::make_unique<AnomalyStep>(std::move(step), state);
  if (options.profile && !options.profile_dir.empty())
    step = std::make_unique<ProfiledStep>(std::move(step), state, options);
  return step;
}

}  // namespace kindling
