// The graph that LibTorch's at::accelerator::Graph finds, which LibTorch has since 2.13.
#if __has_include(<ATen/core/GraphImplInterface.h>)

#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

class FakeGraph final : public at::GraphImplInterface {
 public:
  explicit FakeGraph(const at::GraphImplArgs&) {}
  void capture_begin(at::MempoolId_t /*pool*/, at::GraphCaptureMode /*mode*/) override { jobs_.begin(); }
  void capture_end() override { jobs_.end(); }
  void instantiate() override {}
  void replay() override { jobs_.replay(); }
  void reset() override { jobs_.clear(); }
  at::MempoolId_t pool() const override { return {1, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}

 private:
  RecordedJobs jobs_;
};

}  // namespace
}  // namespace kindling::fake

namespace at {
// By the name of the back end, in capitals.
C10_REGISTER_CLASS(GraphImplRegistry, FAKE, kindling::fake::FakeGraph)
}  // namespace at

#endif
