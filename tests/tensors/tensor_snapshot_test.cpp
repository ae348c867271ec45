// Values of tensors that come back.
#include "tensors/tensor_snapshot.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class TensorSnapshots : public OnDevice {};
KINDLING_RUN_ON_DEVICES(TensorSnapshots);

TEST_P(TensorSnapshots, RestoreWhenTheyAreDestroyed) {
  const at::Tensor tensor = at::arange(6, at::dtype(at::kFloat).device(device_)).view({2, 3});
  const at::Tensor before = tensor.clone();
  {
    const TensorSnapshot snapshot({tensor, {}});
    tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  }
  EXPECT_TRUE(same(tensor.cpu(), before.cpu()));
}

TEST_P(TensorSnapshots, RestoreAsOftenAsAskedFor) {
  const at::Tensor tensor = at::ones({3}, at::dtype(at::kLong).device(device_));
  const TensorSnapshot snapshot({tensor});
  for (int i = 0; i < 2; ++i) {
    tensor.add_(1);
    snapshot.restore();
    EXPECT_TRUE(tensor.eq(1).all().cpu().item<bool>());
  }
}

TEST_P(TensorSnapshots, RestoreSharedMemoryThroughAnyView) {
  const at::Tensor whole = at::zeros({4}, at::dtype(at::kFloat).device(device_));
  const at::Tensor first = whole.narrow(0, 0, 2), last = whole.narrow(0, 2, 2);
  {
    const TensorSnapshot snapshot({first, last});
    whole.fill_(7);
  }
  EXPECT_TRUE(whole.eq(0).all().cpu().item<bool>());
}

// Otherwise the backward of a graph that has saved the tensor would be refused.
TEST(TensorSnapshot, DoesNotChangeVersions) {
  const at::Tensor tensor = at::ones({2});
  const TensorSnapshot snapshot({tensor});
  tensor.add_(1);
  const auto version = tensor._version();
  snapshot.restore();
  EXPECT_EQ(tensor._version(), version);
}

}  // namespace
}  // namespace kindling
