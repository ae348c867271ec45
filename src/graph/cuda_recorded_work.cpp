#include <ATen/DeviceAccelerator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "graph/recorded_work.h"

namespace kindling {
namespace {

class CudaRecordedWork : public RecordedWork {
 public:
  CudaRecordedWork(Device device, const std::function<void()>& work) {
    // The default stream cannot be recorded.
    const c10::Stream side =
        c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    at::accelerator::synchronizeDevice(device.index());
    const c10::StreamGuard on_side(side);
    work();  // libraries make their handles and buffers now, which they may not while they are recorded
    side.synchronize();
    graph_.capture_begin();
    work();
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<RecordedWork> record_work(Device device, const std::function<void()>& work) {
  return device.is_cuda() ? std::make_unique<CudaRecordedWork>(device, work) : nullptr;
}

std::string why_no_graph(Device device) {
  if (device.is_cuda()) return "";
  return device.is_cpu() ? "the CPU has none" : device.str() + " has none";
}

}  // namespace kindling
