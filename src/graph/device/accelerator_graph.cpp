// Graphs of devices that have registered an implementation with LibTorch, which supports this since 2.13.
#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <utility>

#include "graph/device/device_graph.h"

namespace kindling {
namespace {

class AcceleratorGraph : public DeviceGraph {
 public:
  explicit AcceleratorGraph(std::unique_ptr<at::GraphImplInterface> graph) : graph_(std::move(graph)) {}
  void replay() override { graph_->replay(); }

 private:
  void begin() override { graph_->capture_begin(); }
  void end() override { graph_->capture_end(); }
  void abandon() noexcept override {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {
      // The failure is already known.
    }
  }

  std::unique_ptr<at::GraphImplInterface> graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_accelerator_graph(c10::DeviceType type) {
  if (!at::has_graph_impl(type)) return nullptr;
  return std::make_unique<AcceleratorGraph>(at::create_graph_impl(type));
}

}  // namespace kindling
