#pragma once

#include <memory>

#include "kindling/training/model_checkpoint.h"
#include "kindling/training/stop_token.h"

namespace kindling {

// A handler of SIGUSR1 for the time before a StopOnSignal is made, which then knows of the signal.
extern "C" void note_early_usr1(int signal);

// The signals of a fit. One at a time. A SIGHUP that is ignored when this is made (nohup) stays ignored.
class StopOnSignal {
 public:
  // From here on SIGUSR1, SIGPIPE and SIGXFSZ do no harm: writes return their errors instead.
  StopOnSignal();
  // Restores the dispositions that it found, unless finish() was called.
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // From here on SIGINT, SIGTERM and SIGHUP stop the training that watch() will name; a later one that does
  // not repeat the first (see StopSignals) ends the process at once. Called before a run says that it is
  // running.
  void defer_stops();

  // SIGUSR1 stops the training too, instead of saving: also one that came since the program was started.
  void stop_on_usr1();

  // From here on SIGINT, SIGTERM and SIGHUP request a stop, and SIGUSR1 requests a checkpoint. A stop that
  // was requested before reaches this token, too. A second call redirects the stop to another training; the
  // checkpoint stays the same.
  void watch(StopToken token, std::shared_ptr<ModelCheckpoint> checkpoint);

  // The result is durable: from here to the end of the process a signal does not change the exit code. Should
  // the process hang, a signal that would end it at once does so with `exit_code`.
  void finish(int exit_code);

  // The signal that requested a stop, 0 for none. SIGUSR1 only if no other one came.
  int signal() const noexcept;
  // Of a program that ends because of it, as shells count; 0 without one.
  int exit_code() const noexcept { return signal() == 0 ? 0 : 128 + signal(); }
};

}  // namespace kindling
