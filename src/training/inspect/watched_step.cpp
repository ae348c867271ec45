#include "training/inspect/inspected_step.h"

#include "kindling/base/log.h"
#include "training/inspect/host_wait_watch.h"

namespace kindling {
namespace {

// Watched steps per epoch. The watch costs as much as several steps, and a model that waits does so from the
// first step.
constexpr std::int64_t kWatchedSteps = 2;

// True for the epochs 0, 1, 2, 4, 8, …: a model may start to wait later, and long runs should not pay for the
// watch.
bool is_watched_epoch(std::int64_t epoch) { return (epoch & (epoch - 1)) == 0; }

}  // namespace

void WatchedStep::run(const Batch& batch, bool ends_window) {
  const Progress& at = state_.progress;
  if (has_warned_ || at.batch >= kWatchedSteps || !is_watched_epoch(at.epoch))
    return step_->run(batch, ends_window);
  const HostWaitWatch watch;
  step_->run(batch, ends_window);
  // An optimizer with a closure reads the loss itself, whatever the model does.
  if (watch.found().empty() || (state_.optimizer && state_.optimizer->needs_closure())) return;
  has_warned_ = true;
  log_warning("training_step calls " + watch.found() +
              ", which makes the host wait for the device in every step; log(name, value) reports a number "
              "without waiting");
}

}  // namespace kindling
