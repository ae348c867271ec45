#include <c10/util/Exception.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <exception>
#include <string_view>

#include "device/shared_setting.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "training/inspect/inspected_step.h"

namespace kindling {
namespace {

using torch::autograd::AnomalyMode;

struct AnomalySetting {
  bool is_on = false, looks_for_nan = true;
};

SharedSetting<AnomalySetting>& anomaly_mode() {
  static SharedSetting<AnomalySetting> setting(
      [] {
        return AnomalySetting{AnomalyMode::is_enabled(), AnomalyMode::should_check_nan()};
      },
      [](const AnomalySetting& wanted) { AnomalyMode::set_enabled(wanted.is_on, wanted.looks_for_nan); });
  return setting;
}

class AnomalyModeScope {
 public:
  AnomalyModeScope() : ticket_(anomaly_mode().take({.is_on = true, .looks_for_nan = true})) {}
  ~AnomalyModeScope() { anomaly_mode().give_back(ticket_); }
  AnomalyModeScope(const AnomalyModeScope&) = delete;
  AnomalyModeScope& operator=(const AnomalyModeScope&) = delete;

 private:
  SharedSetting<AnomalySetting>::Ticket ticket_;
};

// Keeps LibTorch from printing where the operator was called; that comes as a warning before the error.
class CallTraces : public c10::WarningHandler {
 public:
  CallTraces() : others_(c10::WarningUtils::get_warning_handler()), guard_(this) {}
  void process(const c10::Warning& warning) override {
    if (std::string_view(warning.msg()).starts_with("Error detected in "))
      latest_ = warning.msg();
    else
      others_->process(warning);
  }
  const std::string& latest() const noexcept { return latest_; }

 private:
  c10::WarningHandler* others_;
  c10::WarningUtils::WarningHandlerGuard guard_;
  std::string latest_;
};

// "SqrtBackward0" of "Function 'SqrtBackward0' returned nan values in its 0th output."
std::string nan_function(std::string_view text) {
  constexpr std::string_view before = "Function '", after = "' returned nan values";
  const std::size_t start = text.find(before), end = text.find(after);
  if (start == std::string_view::npos || end == std::string_view::npos) return {};
  return std::string(text.substr(start + before.size(), end - start - before.size()));
}

}  // namespace

template <class Call>
auto AnomalyStep::in_anomaly_mode(const Call& call) const {
  const AnomalyModeScope scope;
  CallTraces traces;
  try {
    return call();
  } catch (const c10::Error& error) {
    if (!traces.latest().empty()) log_info(traces.latest());
    const std::string function = nan_function(error.what_without_backtrace());
    if (function.empty()) throw;
    const std::string name = function.substr(0, function.find("Backward"));
    std::throw_with_nested(Error(
        {.place = "step " + std::to_string(state_.progress.global_step + 1) + " of " + state_.model->name(),
         .found = "the gradient of the operator " + name + " (" + function + ") is NaN",
         .remedy = "keep its input away from points where the gradient is undefined; the calls that led to "
                   "it are in "
                   "the app log"}));
  }
}

StepOutcome AnomalyStep::run(const Batch& batch, WindowPosition place) {
  return in_anomaly_mode([&] { return step_->run(batch, place); });
}

void AnomalyStep::end_window() {
  in_anomaly_mode([&] { step_->end_window(); });
}

}  // namespace kindling
