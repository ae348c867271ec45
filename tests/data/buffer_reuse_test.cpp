// When the memory of a batch may be written again.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/data/data_loader.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// Batches of 2 of 0…5 in the order of the generator: the memory of the first is what a second would get.
class BufferReuse : public testing::Test {
 protected:
  void expect_kept(at::Tensor (*part_of)(const at::Tensor& values)) {
    Batch batch;
    loader_.start_epoch(0);
    ASSERT_TRUE(loader_.next(batch));
    const at::Tensor part = part_of(batch[0]), values = part.clone();
    batch.clear();
    while (loader_.next(batch)) EXPECT_FALSE(batch[0].is_alias_of(part));
    EXPECT_TRUE(same(part, values));
  }

  DataLoader loader_{std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(6)}),
                     {.batch_size = 2, .shuffle = true, .seed = 3}};
};

TEST_F(BufferReuse, WaitsForADetachedTensor) {
  expect_kept([](const at::Tensor& values) { return values.detach(); });
}

TEST_F(BufferReuse, WaitsForAView) {
  expect_kept([](const at::Tensor& values) { return values.view({1, 2}); });
}

TEST_F(BufferReuse, WaitsForAPartThatWasDetached) {
  expect_kept([](const at::Tensor& values) { return values.narrow(0, 1, 1).detach(); });
}

TEST_F(BufferReuse, DoesNotWaitForACopy) {
  Batch batch;
  loader_.start_epoch(0);
  loader_.next(batch);
  const void* memory = batch[0].const_data_ptr();
  const at::Tensor copy = batch[0].clone();
  batch.clear();
  loader_.next(batch);
  EXPECT_EQ(batch[0].const_data_ptr(), memory);
}

// Parts of itself: nothing that the loader could write again, and nothing that it should keep.
class OwnParts : public Dataset {
 public:
  std::int64_t size() const override { return 64; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    batch = Batch{parts_.emplace_back(indices * 2)};
    most_held_ = std::max<std::int64_t>(most_held_, num_held_elsewhere());
  }
  std::int64_t most_held() const { return most_held_; }

 private:
  std::int64_t num_held_elsewhere() const {
    std::int64_t held = 0;
    for (const at::Tensor& part : parts_) held += part.use_count() > 1 ? 1 : 0;
    return held;
  }
  mutable std::vector<at::Tensor> parts_;
  mutable std::int64_t most_held_ = 0;
};

TEST(BufferReuseOfAnOwnSet, KeepsFewBuffersInUse) {
  const auto set = std::make_shared<OwnParts>();
  DataLoader loader(set, {.batch_size = 2});
  for (const Batch& batch : loader) EXPECT_EQ(batch.num_samples(), 2);
  EXPECT_LE(set->most_held(), 5) << "of 32 batches";
}

}  // namespace
}  // namespace kindling
