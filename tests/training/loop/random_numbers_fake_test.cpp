// The random numbers of samples travel with their batch: no wait, no copy to the host.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fake_accelerator.h"
#include "kindling/models/mlp.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

struct Augmented : TensorData {
  Augmented()
      : TensorData({at::rand({24, 1, 10, 10}), at::arange(24).remainder(10)}, {}, {.batch_size = 8}) {}
  std::int64_t num_random_numbers(Stage stage) const override { return stage == Stage::train ? 1 : 0; }
  using TensorData::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch, Stage) override {
    const at::Tensor& numbers = batch.random_numbers();
    devices.push_back(numbers.device());
    batch.tensors()[0] = at::where(numbers.view({-1, 1, 1, 1}).lt(0.5), batch[0].flip({3}), batch[0]);
    return batch;
  }
  std::vector<Device> devices;
};

struct CountsOfLoops : Callback {
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().batch == trainer.progress().num_train_batches) counts.push_back(fake::counts());
  }
  std::vector<fake::Counts> counts;
};

std::vector<at::Tensor> trained(std::int64_t num_gpus, Augmented& data,
                                const std::shared_ptr<CountsOfLoops>& counts) {
  at::manual_seed(0);
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  Trainer({.max_epochs = 2, .num_gpus = num_gpus, .callbacks = {counts}}).fit(model, data);
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : model->parameters()) weights.push_back(weight.detach().cpu());
  return weights;
}

TEST(FakeRandomNumbers, TravelWithTheBatchWithoutAWait) {
  const fake::LateCopies late;
  at::manual_seed(1);
  Augmented data;
  const auto counts = std::make_shared<CountsOfLoops>();
  trained(1, data, counts);
  ASSERT_EQ(counts->counts.size(), 2U);
  for (const fake::Counts& loop : counts->counts) {
    EXPECT_EQ(loop.host_waits(), 0);
    EXPECT_EQ(loop.item_reads + loop.data_dependent_ops, 0);
    EXPECT_EQ(loop.blocking_host_to_device_copies, 0);
    EXPECT_GE(loop.host_to_device_copies, 3);  // the numbers of each batch
  }
  EXPECT_EQ(data.devices.size(), 6U);
  for (const Device device : data.devices) EXPECT_FALSE(device.is_cpu());
}

TEST(FakeRandomNumbers, AreTheSameOnAllDevices) {
  at::manual_seed(1);
  Augmented data;
  const auto counts = std::make_shared<CountsOfLoops>();
  const auto on_host = trained(0, data, counts), on_device = trained(1, data, counts);
  for (std::size_t i = 0; i < on_host.size(); ++i) EXPECT_TRUE(at::allclose(on_host[i], on_device[i])) << i;
}

}  // namespace
}  // namespace kindling
