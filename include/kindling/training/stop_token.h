#pragma once

#include <atomic>
#include <memory>

namespace kindling {

// Asks a Trainer to stop after the step it is in. The one thing of a Trainer that other threads and signal
// handlers may call; it may outlive the Trainer.
class StopToken {
 public:
  StopToken() : requested_(std::make_shared<std::atomic<bool>>(false)) {}

  void request_stop() const noexcept { requested_->store(true, std::memory_order_relaxed); }
  bool stop_requested() const noexcept { return requested_->load(std::memory_order_relaxed); }
  void reset() const noexcept { requested_->store(false, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<bool>> requested_;
};

}  // namespace kindling
