// Batches are copied on a separate stream.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "kindling/tensors/state_dict.h"
#include "support/tensor_matchers.h"
#include "tensors/copy_stream.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

at::Tensor pinned(const at::Tensor& values) {
  at::Tensor tensor = at::empty(values.sizes(), values.options().pinned_memory(true));
  tensor.copy_(values);
  return tensor;
}

TEST(FakeCopyStream, DelaysTheDeviceButNotTheHost) {
  const fake::LateCopies late;
  for (const int index : {0, 1}) {
    CopyStream copies(fake::device(index));
    const at::Tensor values = pinned(at::arange(5, at::kFloat)), labels = pinned(at::arange(5));
    fake::reset_counts();
    const Batch batch = copies.move(Batch{values, labels});
    const at::Tensor doubled = batch[0] * 2;
    const fake::Counts counts = fake::counts();
    EXPECT_EQ(counts.host_waits() + counts.blocking_host_to_device_copies, 0);
    EXPECT_EQ(counts.host_to_device_copies, 2);
    EXPECT_EQ(counts.side_stream_copies, 2);
    EXPECT_EQ(counts.recorded_streams, 2);
    EXPECT_TRUE(same(doubled, at::arange(5, at::kFloat) * 2));
    EXPECT_TRUE(same(batch[1], labels));
  }
}

TEST(FakeCopyStream, CopiesHostTensorsOnly) {
  const fake::LateCopies late;
  CopyStream copies(fake::device(0));
  const at::Tensor there = at::ones({2}, fake::device(0)), elsewhere = at::ones({2}, fake::device(1)),
                   lengths = pinned(at::arange(2));
  fake::reset_counts();
  const Batch batch =
      copies.move(Batch::list({Batch::leaf(there), Batch::leaf(elsewhere), Batch::host_leaf(lengths),
                               Batch::leaf(pinned(at::zeros({2})))}));
  EXPECT_TRUE(batch[0].is_same(there));
  EXPECT_EQ(batch[1].device(), fake::device(0));
  EXPECT_TRUE(batch[2].is_same(lengths));
  EXPECT_TRUE(same(batch[3], at::zeros({2})));
  EXPECT_EQ(fake::counts().side_stream_copies, 1);
  EXPECT_EQ(fake::counts().recorded_streams, 1);
}

// A fit of batches that travel, on the CPU or on the fake.
std::pair<std::vector<Record>, fake::Counts> fit_on(std::int64_t num_gpus) {
  const auto logger = std::make_shared<MemoryLogger>();
  at::manual_seed(3);
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  NoiseImages data(38, 10, 8, "off");
  Trainer trainer(
      {.max_epochs = 3,
       .num_gpus = num_gpus,
       .step_graph = "off",
       .num_sanity_val_steps = 0,
       .optimizer = [](auto parameters) { return std::make_unique<AdamW>(std::move(parameters)); },
       .loggers = {logger}});
  trainer.layer_summary(model, data);
  fake::reset_counts();
  trainer.fit(model, data);
  return {logger->records(), fake::counts()};
}

TEST(FakeCopyStream, CarriesTheBatchesOfAFit) {
  const fake::LateCopies late;
  const auto [there, counts] = fit_on(1);
  const auto [here, of_the_cpu] = fit_on(0);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(numbers_of(there[i]), numbers_of(here[i]));
  // Five batches of two tensors, in training and validation.
  EXPECT_EQ(counts.host_to_device_copies, 3 * 2 * 2 * 5);
  EXPECT_EQ(counts.side_stream_copies, counts.host_to_device_copies);
  EXPECT_EQ(counts.recorded_streams, counts.host_to_device_copies);
  EXPECT_EQ(counts.host_waits(), 3 * 2);  // the logs
  EXPECT_EQ(of_the_cpu.host_to_device_copies + of_the_cpu.side_stream_copies, 0);
}

}  // namespace
}  // namespace kindling
