#pragma once

#include <ATen/record_function.h>

#include <string>

namespace kindling {

// While it exists, detects operators on this thread that make the host wait: item(), nonzero() and the like,
// on any device, and blocking copies from a device to the host. Ignores operators inside fused optimizers,
// which read their step counters on the CPU. Costs microseconds per operator, so use it for a few steps only.
// At most one per thread.
class HostWaitWatch {
 public:
  HostWaitWatch();
  ~HostWaitWatch();
  HostWaitWatch(const HostWaitWatch&) = delete;
  HostWaitWatch& operator=(const HostWaitWatch&) = delete;

  // Returns LibTorch's name of the first such operator ("aten::item", "aten::copy_"); empty: none so far.
  const std::string& found() const noexcept { return found_; }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);

  std::string found_;
  int depth_in_fused_ = 0;  // nesting depth within a fused optimizer, itself included
  at::CallbackHandle handle_;
};

}  // namespace kindling
