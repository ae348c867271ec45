// The finders on a GPU: no step waits, and no memory stays allocated.
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/device/device_memory.h"
#include "kindling/models/small_cnn.h"
#include "kindling/training/batch_size_finder.h"
#include "kindling/training/lr_finder.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Looks at what the device has seen at the start of each step.
struct Looking : Slope {
  at::Tensor training_step(const Batch& batch) override {
    seen.push_back(fake::counts());
    return Slope::training_step(batch);
  }
  std::vector<fake::Counts> seen;
};

TEST(FakeFinders, ReadLossesWithoutAWait) {
  const fake::LateCopies late;
  TensorData data = ramp(120, 0, 3);  // an epoch of 40 batches
  const auto model = std::make_shared<Looking>();
  const LrFinderResult result =
      find_lr({.num_gpus = 1, .optimizer = sgd(0.1)}, model, data,
              {.max_lr = 1e-4, .num_training_steps = 30, .early_stop_threshold = 0});
  ASSERT_EQ(model->seen.size(), 30U);
  EXPECT_EQ(model->seen.back().host_waits(), model->seen.front().host_waits());
  EXPECT_EQ(result.losses.size(), 30U);
  for (const double loss : result.losses) EXPECT_TRUE(std::isfinite(loss));
}

// Losses arrive late on a GPU: it may run some more steps, but the result is that of the CPU.
TEST(FakeFinders, MatchTheResultOnTheCpu) {
  const auto search = [](std::int64_t num_gpus) {
    TensorData data = ramp(120, 0, 3);
    return find_lr({.num_gpus = num_gpus, .optimizer = sgd(0.1)}, std::make_shared<Slope>(), data,
                   {.min_lr = 1e-4, .max_lr = 10, .num_training_steps = 80});
  };
  const fake::LateCopies late;
  const LrFinderResult on_cpu = search(0), on_card = search(1);
  EXPECT_TRUE(on_cpu.stopped_early);
  EXPECT_TRUE(on_card.stopped_early);
  EXPECT_EQ(on_card.lrs, on_cpu.lrs);
  EXPECT_EQ(on_card.smoothed, on_cpu.smoothed);
  EXPECT_EQ(on_card.suggestion(), on_cpu.suggestion());
}

TEST(FakeFinders, RestoreTheMemoryOfTheGpu) {
  NoiseImages data(64, 8, 8);
  const auto model = std::make_shared<SmallCnn>();
  find_lr({.num_gpus = 1}, model, data, {.num_training_steps = 4});  // what stays for the process is there
  const auto before = fake::counts().live_bytes;
  find_lr({.num_gpus = 1}, model, data, {.num_training_steps = 4});
  find_batch_size({.num_gpus = 1}, model, data);
  EXPECT_EQ(fake::counts().live_bytes, before);
}

// The trials of a search get along with less than there is.
TEST(FakeFinders, HoldBackTheMarginOnTheGpu) {
  const auto live_bytes = [](double margin) {
    const auto model = std::make_shared<Looking>();
    TensorData data = ramp(20, 0, 2);
    find_batch_size({.num_gpus = 1, .optimizer = sgd(0.1)}, model, data, {.max_trials = 1, .margin = margin});
    return model->seen.back().live_bytes[0];
  };
  const auto plain = live_bytes(0);
  const auto free = static_cast<double>(device_memory(gpu()).free_bytes);
  EXPECT_EQ(live_bytes(0.25) - plain, static_cast<std::int64_t>(0.25 * free));
}

// The memory that a trial begins with is that of the one before, and the weight, which the first has moved.
TEST(FakeFinders, FreeTheMemoryOfEachTrial) {
  struct Watched : DataModule {
    std::shared_ptr<DataLoader> train_dataloader() override {
      live_bytes.push_back(fake::counts().live_bytes[0]);
      return data.train_dataloader();
    }
    TensorData data = ramp(20, 0, 2);
    std::vector<std::int64_t> live_bytes;
  } data;
  find_batch_size({.num_gpus = 1, .optimizer = sgd(0.1)}, std::make_shared<Slope>(), data, {.max_trials = 4});
  ASSERT_EQ(data.live_bytes.size(), 5U);  // asked once for the number of samples
  for (std::size_t trial = 2; trial < 5; ++trial)
    EXPECT_EQ(data.live_bytes[trial] - data.live_bytes[1], static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace
}  // namespace kindling
