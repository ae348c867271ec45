// Transforms on a device: what they compute and what the host waits for.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "data/transforms/every_transform.h"
#include "fake_accelerator.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(FakeTransforms, NeitherCopyNorWait) {
  for (const auto& [name, transform] : every_transform()) {
    at::manual_seed(2);
    const TransformCase on_host(*transform);
    const at::Device device = fake::device(1);
    // A mask between images and labels. mix_up takes none of integers.
    const at::Tensor mask =
        name == "mix_up" ? on_host.images : on_host.images.select(1, 0).mul(9).to(at::kLong);
    const Batch batch{on_host.images.to(device), mask.to(device), on_host.labels.to(device)};
    const at::Tensor uniforms = on_host.uniforms.to(device);
    transform->apply(batch, uniforms);  // the first use of a device copies constants there
    fake::reset_counts();
    const Batch out = transform->apply(batch, uniforms);
    const fake::Counts counts = fake::counts();
    EXPECT_EQ(counts.host_waits(), 0) << name;
    EXPECT_EQ(counts.device_to_host_copies, 0) << name;
    EXPECT_EQ(counts.host_to_device_copies, 0) << name;
    const Batch expected = transform->apply({on_host.images, mask, on_host.labels}, on_host.uniforms);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(out[i], expected[i])) << name;
  }
}

}  // namespace
}  // namespace kindling
