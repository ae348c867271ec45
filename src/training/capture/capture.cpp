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
    return CaptureMode::eager("those of a ManualModule are not");
  if (options.sync_batchnorm && context.group() != nullptr)
    return CaptureMode::eager("with sync_batchnorm the processes talk in the middle of them");
  if (options.step_graph == "auto" && !model.has_static_graph())
    return CaptureMode::eager("the model does not say has_static_graph()");
  if (const Device device = context.device(); !device.is_cpu())
    if (const std::string reason = why_no_graph(device); !reason.empty())
      return CaptureMode::eager("a device needs graphs for that, and " + reason);
  if (options.detect_anomaly) return CaptureMode::eager("detect_anomaly looks at each operator");
  if (options.profile) return CaptureMode::eager("profile looks at each operator");
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
