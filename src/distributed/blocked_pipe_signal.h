#pragma once

#include <csignal>

namespace kindling {

// As long as it lives, a write of this thread to a closed connection fails with EPIPE; its SIGPIPE, which
// would end the process, is taken back. Gloo writes like that when another rank has left. Threads started
// meanwhile block the signal for good. Leaves the thread's mask and the process's handlers as they were. A
// SIGPIPE that somebody sends to the process meanwhile may be lost.
class BlockedPipeSignal {
 public:
  BlockedPipeSignal();
  ~BlockedPipeSignal();
  BlockedPipeSignal(const BlockedPipeSignal&) = delete;
  BlockedPipeSignal& operator=(const BlockedPipeSignal&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;
};

}  // namespace kindling
