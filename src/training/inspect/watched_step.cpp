#include <c10/util/Type.h>

#include <string_view>

#include "kindling/base/log.h"
#include "training/inspect/host_wait_watch.h"
#include "training/inspect/inspected_step.h"

namespace kindling {
namespace {

// Watched steps per epoch. The watch costs as much as several steps, and a model that waits does so from the
// first step.
constexpr std::int64_t kWatchedSteps = 2;

// True for the epochs 0, 1, 2, 4, 8, …: a model may start to wait later, and long runs should not pay for the
// watch.
bool is_watched_epoch(std::int64_t epoch) { return (epoch & (epoch - 1)) == 0; }

std::vector<at::Tensor> host_tensors_of(const Batch& batch) {
  std::vector<at::Tensor> on_host;
  for (std::size_t i = 0; i < batch.tensors().size(); ++i)
    if (batch.stays_on_host(i)) on_host.push_back(batch.tensors()[i]);
  return on_host;
}

std::string hint_for(std::string_view caller) {
  if (caller == HostCaller::kTrainingStep) return "log(name, value) reports a number without";
  if (caller == HostCaller::kCallback)
    return "records and Trainer::preview() have numbers that are on the host already, and Trainer::log(name, "
           "value) reports one without";
  if (caller == HostCaller::kOptimizer) return "an update can keep its numbers in tensors on the device";
  return "a hook or a function with its own backward can keep its numbers in tensors on the device";
}

void warn_of(const HostWaitWatch::Wait& wait, Device device) {
  std::string caller = wait.caller.what;
  if (wait.caller.type != nullptr) caller += " " + c10::demangle(wait.caller.type->name());
  const char* const effect = device.is_cpu() ? ", which would make the host wait for a GPU in every step; "
                                             : ", which makes the host wait for the device in every step; ";
  log_warning(caller + " calls " + wait.op + effect + hint_for(wait.caller.what));
}

}  // namespace

StepOutcome WatchedStep::run(const Batch& batch, WindowPosition place) {
  const Progress& at = state_.progress;
  if (has_warned_ || at.batch >= kWatchedSteps || !is_watched_epoch(at.epoch))
    return step_->run(batch, place);
  const HostWaitWatch watch(state_.log.device(), host_tensors_of(batch));
  const StepOutcome outcome = step_->run(batch, place);
  // An optimizer with a closure reads the loss itself, whatever the model does.
  if (watch.found().empty() || (state_.optimizer && state_.optimizer->needs_closure())) return outcome;
  has_warned_ = true;
  for (const HostWaitWatch::Wait& wait : watch.found()) warn_of(wait, state_.log.device());
  return outcome;
}

}  // namespace kindling
