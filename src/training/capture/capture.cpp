#include "training/capture/capture.h"

#include "graph/device/device_graph.h"
#include "training/capture/captured_gradients.h"
#include "training/capture/captured_update.h"

namespace kindling {

CaptureMode capture_mode(const TrainingContext& context) {
  const TrainerOptions& options = context.options;
  const Module& model = *context.state.model;
  if (options.step_graph == "off") return CaptureMode::eager("step_graph is off");
  if (dynamic_cast<const ManualModule*>(&model) != nullptr)
    return CaptureMode::eager("a ManualModule is never captured");
  if (options.sync_batchnorm && context.group() != nullptr)
    return CaptureMode::eager("with sync_batchnorm the ranks communicate within a step");
  if (options.step_graph == "auto" && !model.has_static_graph())
    return CaptureMode::eager("has_static_graph() of the model is false");
  if (const Device device = context.device(); !device.is_cpu())
    if (const std::string reason = why_no_graph(device); !reason.empty())
      return CaptureMode::eager("capture needs device graphs, but " + reason);
  if (options.detect_anomaly) return CaptureMode::eager("detect_anomaly inspects each operator");
  if (options.profile) return CaptureMode::eager("profile inspects each operator");
  return CaptureMode::captured();
}

std::unique_ptr<BatchGradients> capture_gradients(TrainingContext& context) {
  return std::make_unique<CapturedGradients>(context);
}

std::unique_ptr<UpdateCapture> capture_update(TrainingContext& context) {
  if (context.device().is_cpu()) return nullptr;
  return std::make_unique<CapturedUpdate>(context.device(), context.state.log);
}

}  // namespace kindling
