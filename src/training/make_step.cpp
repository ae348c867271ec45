#include "training/make_step.h"

#include <string>

#include "graph/device_graph.h"
#include "kindling/base/log.h"
#include "training/anomaly_step.h"
#include "training/automatic_step.h"
#include "training/manual_step.h"
#include "training/profiled_step.h"
#include "training/recorded_gradients.h"
#include "training/watched_step.h"

namespace kindling {

namespace {

bool is_manual(const Module& model) { return dynamic_cast<const ManualModule*>(&model) != nullptr; }

// Why the steps of a training are not recorded, whatever they do; empty: they may be.
std::string why_not_recorded(const TrainState& state, const TrainerOptions& options) {
  if (options.step_graph == "off") return "step_graph is off";
  if (is_manual(*state.model)) return "those of a ManualModule are not";
  if (options.sync_batchnorm && options.process_group)
    return "with sync_batchnorm the processes talk in the middle of them";
  if (options.step_graph == "auto" && !state.model->static_step())
    return "the model does not say static_step()";
  if (const Device device = state.log.device(); !device.is_cpu())
    if (const std::string reason = why_no_graph(device); !reason.empty())
      return "a device needs graphs for that, and " + reason;
  if (options.detect_anomaly) return "detect_anomaly looks at each operator";
  if (options.profile) return "profile looks at each operator";
  return {};
}

std::unique_ptr<BatchGradients> make_gradients(TrainState& state, TrainerInfo& info,
                                               const TrainerOptions& options) {
  if (info.why_not_recorded.empty()) return std::make_unique<RecordedGradients>(state, info, options);
  return std::make_unique<EagerGradients>(state, info);
}

}  // namespace

std::unique_ptr<Step> make_step(TrainState& state, TrainerInfo& info, const TrainerOptions& options,
                                const Callbacks& callbacks) {
  std::unique_ptr<Step> step;
  info.why_not_recorded = why_not_recorded(state, options);
  if (options.step_graph == "on" && !info.why_not_recorded.empty())
    log_warning("step_graph: steps are not recorded: " + info.why_not_recorded);
  if (is_manual(*state.model)) {
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
