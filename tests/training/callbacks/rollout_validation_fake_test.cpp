// What pairs in time and rollouts copy and wait for, counted by the device.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>

#include "data/transforms/sample_noise.h"
#include "fake_accelerator.h"
#include "kindling/data/array_data.h"
#include "kindling/models/linear_regression.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/rollout_validation.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

ArrayDataOptions waves(const Scratch& scratch) {
  const at::Tensor states = at::arange(240, at::kFloat).view({4, 20, 3}).sin();
  save_safetensors({.tensors = {{"x", states}}, .metadata = {}}, scratch / "x.safetensors");
  ArrayDataOptions options{.file = scratch / "x.safetensors", .normalize_by = "channels", .horizon = 1};
  options.layout = "series_time";
  options.input_noise = 0.1;
  options.rollout_steps = 6;
  return options;
}

TEST(FakeRollout, TransformsBatchesWithoutCopiesOrWaits) {
  const Scratch scratch;
  ArrayData data(waves(scratch), {.batch_size = 8, .val = {{2, 4}}});
  const Batch raw = data.train_dataloader()->dataset().slice(0, 8);
  const at::Tensor numbers = at::arange(8 * kNumbersOfNoise, at::kFloat).view({8, -1}) / 64;
  const auto batch_on = [&](at::Device device) {
    Batch batch{raw[0].to(device), raw[1].to(device)};
    batch.set_random_numbers(numbers.to(device));
    return batch;
  };
  const Batch expected = data.on_after_batch_transfer(batch_on(at::kCPU), Stage::train);
  data.on_after_batch_transfer(batch_on(fake::device(1)), Stage::train);  // moves the statistics
  const Batch batch = batch_on(fake::device(1));
  fake::reset_counts();
  const Batch found = data.on_after_batch_transfer(batch, Stage::train);
  data.unscale_targets(found[1]);
  const fake::Counts counts = fake::counts();
  EXPECT_EQ(counts.host_waits(), 0);
  EXPECT_EQ(counts.device_to_host_copies, 0);
  EXPECT_EQ(counts.host_to_device_copies, 0);
  EXPECT_TRUE(same(found[0].cpu(), expected[0]));
  EXPECT_TRUE(same(found[1].cpu(), expected[1]));
}

TEST(FakeRollout, IsCopiedToTheHostOnceHoweverManyBatchesThereAre) {
  const Scratch scratch;
  for (const std::int64_t batch_size : {1, 5, 32}) {
    ArrayData data(waves(scratch), {.batch_size = batch_size, .val = {{2, 4}}});
    const auto model = std::make_shared<LinearRegression>(LinearRegressionOptions{.num_outputs = 3});
    Trainer trainer({.num_gpus = 1});
    trainer.validate(model, data);  // creates the parameters of lazy layers
    fake::reset_counts();
    EXPECT_EQ(rollout_errors(trainer, model, data).rmse.size(), 6U);
    const fake::Counts counts = fake::counts();
    EXPECT_EQ(counts.device_to_host_copies, 1);
    EXPECT_EQ(counts.item_reads + counts.data_dependent_ops, 0);
  }
}

}  // namespace
}  // namespace kindling
