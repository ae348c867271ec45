#pragma once

#include <ATen/record_function.h>

#include <string>

namespace kindling {

// While it lives, notices operators on this thread that make the host wait: item(), nonzero() and the like,
// on any device, and blocking copies from a device to the host. What the fused optimizers do inside is
// theirs: on the CPU they read their counters. Costs microseconds per operator, so it is for a few steps
// only. One at a time per thread.
class HostWaitWatch {
 public:
  HostWaitWatch();
  ~HostWaitWatch();
  HostWaitWatch(const HostWaitWatch&) = delete;
  HostWaitWatch& operator=(const HostWaitWatch&) = delete;

  // The first such operator, as LibTorch names it ("aten::item", "aten::copy_"); empty: none so far.
  const std::string& found() const noexcept { return found_; }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);

  std::string found_;
  int depth_in_fused_ = 0;  // operators that are running inside a fused optimizer and itself
  at::CallbackHandle handle_;
};

}  // namespace kindling
