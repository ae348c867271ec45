// A loader whose batches go now here, now there.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/data/data_loader.h"
#include "kindling/tensors/move.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

std::shared_ptr<const Dataset> six_samples() {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(6)});
}

TEST(FakeStaging, FollowsTheDeviceFromEpochToEpoch) {
  for (const bool shuffle : {false, true}) {
    const fake::LateCopies late;
    DataLoader loader(six_samples(), {.batch_size = 2, .shuffle = shuffle, .seed = 3});
    DataLoader whole(six_samples(), {.batch_size = 6, .shuffle = shuffle, .seed = 3});
    const std::vector<Device> devices{cpu(), fake::device(0), fake::device(1), cpu(), fake::device(0)};
    std::vector<at::Tensor> there, expected;
    for (std::size_t epoch = 0; epoch < devices.size(); ++epoch) {
      const Device device = devices[epoch];
      Batch batch;
      whole.start_epoch(static_cast<std::int64_t>(epoch));
      whole.next(batch);
      expected.push_back(batch[0].clone());
      loader.stage_for(device);
      loader.start_epoch(static_cast<std::int64_t>(epoch));
      while (loader.next(batch)) {
        EXPECT_EQ(batch[0].is_pinned(), !device.is_cpu()) << "shuffle " << shuffle << ", epoch " << epoch;
        there.push_back(device.is_cpu() ? batch[0].clone() : move_to(batch[0], device));
      }
    }
    ASSERT_EQ(there.size(), 15U);
    std::vector<at::Tensor> on_host;
    for (const at::Tensor& batch : there) on_host.push_back(batch.cpu());
    EXPECT_TRUE(same(at::cat(on_host), at::cat(expected))) << shuffle;
  }
}

TEST(FakeStaging, ChangesInTheMiddleOfAnEpoch) {
  DataLoader loader(six_samples(), {.batch_size = 2});
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  loader.stage_for(fake::device(0));
  loader.next(batch);
  EXPECT_TRUE(batch[0].is_pinned());
  EXPECT_TRUE(same(batch[0], at::tensor({2, 3}, at::kLong)));
  loader.stage_for(cpu());
  loader.next(batch);
  EXPECT_FALSE(batch[0].is_pinned());
  EXPECT_TRUE(same(batch[0], at::tensor({4, 5}, at::kLong)));
}

}  // namespace
}  // namespace kindling
