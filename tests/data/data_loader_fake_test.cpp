// Staging buffers and copies that are still under way.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "fake_accelerator.h"
#include "kindling/data/data_loader.h"
#include "kindling/tensors/move.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class FakeLoader : public testing::TestWithParam<int> {
 protected:
  const Device device_ = fake::device(GetParam());
  const at::Tensor data_ = at::arange(24, at::kFloat);
  DataLoader loader_{std::make_shared<TensorDataset>(std::vector<at::Tensor>{data_}), {.batch_size = 4}};

  // Where the copies of this epoch have gone, in order.
  at::Tensor moved(const std::vector<Batch>& batches) const {
    std::vector<at::Tensor> parts;
    for (const Batch& batch : batches) parts.push_back(batch[0].cpu());
    return at::cat(parts);
  }
};
INSTANTIATE_TEST_SUITE_P(FakeDevices, FakeLoader, testing::Values(0, 1));

TEST_P(FakeLoader, AsynchronousCopiesStayCorrect) {
  const fake::LateCopies late;
  loader_.stage_for(device_);
  for (int epoch = 0; epoch < 3; ++epoch) {
    fake::reset_counts();
    std::vector<Batch> there;
    Batch batch;
    loader_.start_epoch(epoch);
    while (loader_.next(batch)) there.push_back(move_to(std::move(batch), device_));
    EXPECT_EQ(fake::counts().host_to_device_copies, 6);
    EXPECT_EQ(fake::counts().blocking_host_to_device_copies, 0);
    EXPECT_EQ(fake::counts().host_waits(), 0);
    EXPECT_TRUE(same(moved(there), data_));
  }
}

TEST_P(FakeLoader, PrefetchedBatchesStayCorrect) {
  const fake::LateCopies late;
  loader_.stage_for(device_);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<Batch> there;
    loader_.start_epoch(epoch);
    for (int pair = 0; pair < 3; ++pair) {
      Batch first, second;
      loader_.next(first);
      loader_.next(second);
      there.push_back(move_to(std::move(first), device_));
      there.push_back(move_to(std::move(second), device_));
    }
    EXPECT_TRUE(same(moved(there), data_));
  }
}

TEST_P(FakeLoader, BuffersAreReusedOnceTheGpuHasReadThem) {
  loader_.stage_for(device_);
  const auto run_epochs = [&](int n) {
    for (int epoch = 0; epoch < n; ++epoch)
      for (const Batch& batch : loader_) move_to(batch, device_);
  };
  run_epochs(1);
  fake::reset_counts();
  run_epochs(5);
  EXPECT_EQ(fake::counts().pinned_allocations, 0);
}

}  // namespace
}  // namespace kindling
