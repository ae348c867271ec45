#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <vector>

#include "device/host_caller.h"
#include "kindling/device/device.h"

namespace kindling {

// While it exists, detects operators on this thread that make the host wait (item(), nonzero() and the like,
// and blocking copies from a device to the host) in code of the user (HostCaller). On an accelerator,
// operators on host tensors do not wait. On the CPU none does, but all count that would wait on an
// accelerator: not those of tensors that stay on the host everywhere, of values computed from these alone,
// and of the batch_sizes of packed sequences. Ignores operators inside fused optimizers, which read their
// step counters on the CPU. Costs microseconds per operator, so use it for a few steps only. The innermost of
// a thread counts.
class HostWaitWatch {
 public:
  struct Wait {
    HostCaller::Name caller;
    std::string op;  // as LibTorch names it: "aten::item", "aten::copy_"
  };

  // `device`: that of the training. `on_host`: tensors that stay on the host wherever the training runs.
  explicit HostWaitWatch(Device device, std::vector<at::Tensor> on_host = {});
  ~HostWaitWatch();
  HostWaitWatch(const HostWaitWatch&) = delete;
  HostWaitWatch& operator=(const HostWaitWatch&) = delete;

  const std::vector<Wait>& found() const noexcept { return found_; }  // the first one of each caller

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);
  bool stays_on_host(const at::Tensor& tensor) const;
  bool waits(const at::RecordFunction& call) const;
  void note(const char* op);
  void keep_on_host(const c10::IValue& output);

  Device device_;
  std::vector<at::Tensor> on_host_;
  std::vector<Wait> found_;
  int depth_in_fused_ = 0;  // nesting depth within a fused optimizer, itself included
  HostWaitWatch* former_;
  at::CallbackHandle handle_;
};

}  // namespace kindling
