#include "training/watched_step.h"

#include "kindling/base/log.h"
#include "training/host_wait_watch.h"

namespace kindling {
namespace {

// Of each epoch: the watch costs too much for every step, and what waits does so from the first one.
constexpr std::int64_t kWatchedSteps = 2;

}  // namespace

void WatchedStep::run(const Batch& batch) {
  if (has_warned_ || progress_.batch >= kWatchedSteps) return step_->run(batch);
  const HostWaitWatch watch;
  step_->run(batch);
  if (watch.found().empty()) return;
  has_warned_ = true;
  log_warning("training_step calls " + watch.found() +
              ", which makes the host wait for the device in every step; log(name, value) reports a number "
              "without");
}

}  // namespace kindling
