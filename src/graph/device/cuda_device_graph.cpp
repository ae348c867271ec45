// CUDA graphs, which LibTorch 2.13 does not register as accelerator graphs.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <optional>

#include "graph/device/device_graph.h"

namespace kindling {
namespace {

// Other threads may query their events and wait for their streams during a capture.
constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeThreadLocal;

// LibTorch 2.11 has memory pools on the device only.
void end_host_pool(auto& allocator, c10::MempoolId_t pool) {
  if constexpr (requires { allocator.end_allocate_to_pool(pool); }) {
    allocator.end_allocate_to_pool(pool);
    allocator.release_pool(pool);
  }
}

// Suppresses the warning about an empty graph, which is intended.
class UnheardWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

class CudaGraph : public DeviceGraph {
 public:
  void replay() override { graph_->replay(); }

 private:
  void begin() override {
    device_ = c10::cuda::current_device();
    pool_ = at::cuda::graph_pool_handle();
    graph_->capture_begin(pool_, kMode);
  }

  void end() override { graph_->capture_end(); }

  // CUDA has reported the error during the capture and reports it again at its end, and LibTorch does no
  // clean-up then: its memory is still allocated in the graph's pool and, in 2.11, its generator still
  // expects a capture, until the next capture that succeeds.
  void abandon() noexcept override {
    try {
      graph_->capture_end();
      return;
    } catch (const c10::Error&) {
    }
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
      c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
      end_host_pool(*at::getHostAllocator(at::kCUDA), pool_);
      graph_.reset();
      UnheardWarnings unheard;
      const c10::WarningUtils::WarningHandlerGuard guard(&unheard);
      at::cuda::CUDAGraph empty;
      empty.capture_begin({0, 0}, kMode);
      empty.capture_end();
    } catch (const c10::Error&) {
      // The device has failed; every further call reports that too.
    }
  }

  std::optional<at::cuda::CUDAGraph> graph_{std::in_place};
  c10::DeviceIndex device_ = 0;
  c10::MempoolId_t pool_{};
};

}  // namespace

std::unique_ptr<DeviceGraph> make_cuda_graph() { return std::make_unique<CudaGraph>(); }

}  // namespace kindling
