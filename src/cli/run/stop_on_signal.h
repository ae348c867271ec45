#pragma once

#include <memory>

#include "kindling/training/model_checkpoint.h"
#include "kindling/training/stop_token.h"

namespace kindling {

// The signals of a fit. One at a time.
class StopOnSignal {
 public:
  // From here on SIGUSR1 does no harm.
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // From here on SIGINT and SIGTERM ask for a stop, a second one ends the process at once, and SIGUSR1 asks
  // for a checkpoint. A second call has them ask another training, also for a stop that has been asked for;
  // the checkpoint is the same.
  void watch(StopToken token, std::shared_ptr<ModelCheckpoint> checkpoint);

  // The signal that has asked for a stop, 0 for none.
  int signal() const noexcept;
  // Of a program that ends because of it, as shells count; 0 without one.
  int exit_code() const noexcept { return signal() == 0 ? 0 : 128 + signal(); }
};

}  // namespace kindling
