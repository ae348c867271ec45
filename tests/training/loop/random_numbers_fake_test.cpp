// The random numbers of samples travel with their batch: no wait, no copy to the host.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "data/transforms/every_transform.h"
#include "fake_accelerator.h"
#include "kindling/data/transformed_data.h"
#include "kindling/models/mlp.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

struct Augmented : TensorData {
  explicit Augmented(std::int64_t num_workers)
      : TensorData({at::rand({48, 1, 10, 10}), at::arange(48).remainder(10)}, {},
                   {.batch_size = 8, .resident = "off", .num_workers = num_workers}) {}
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
  model->forward(at::zeros({1, 100}));  // creates its parameters
  Trainer({.max_epochs = 2, .num_gpus = num_gpus, .callbacks = {counts}}).fit(model, data);
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : model->parameters()) weights.push_back(weight.detach().cpu());
  return weights;
}

TEST(FakeRandomNumbers, TravelWithTheBatchWithoutAWait) {
  const fake::LateCopies late;
  for (const std::int64_t num_workers : {0, 2}) {
    at::manual_seed(1);
    Augmented data(num_workers);
    const auto counts = std::make_shared<CountsOfLoops>();
    trained(1, data, counts);
    ASSERT_EQ(counts->counts.size(), 2U);
    for (const fake::Counts& loop : counts->counts) {
      EXPECT_EQ(loop.host_waits(), 0);
      EXPECT_EQ(loop.item_reads + loop.data_dependent_ops, 0);
      EXPECT_EQ(loop.blocking_host_to_device_copies, 0);
      EXPECT_EQ(loop.host_to_device_copies, 3 * 6);  // images, labels and numbers of six batches
    }
    EXPECT_EQ(data.devices.size(), 12U);
    for (const Device device : data.devices) EXPECT_FALSE(device.is_cpu());
  }
}

// The counts of the second epoch: the first one copies constants to the device. `inputs`: a sample for lazy
// layers.
fake::Counts counts_of_fit(DataModule& data, const at::Tensor& inputs) {
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  model->forward(inputs);
  const auto counts = std::make_shared<CountsOfLoops>();
  Trainer({.max_epochs = 2, .num_gpus = 1, .callbacks = {counts}}).fit(model, data);
  return counts->counts.at(1);
}

// Fits with augmentation copy the random numbers in addition, and wait for nothing.
TEST(FakeRandomNumbers, EveryTransformTrainsWithoutAWait) {
  const fake::LateCopies late;
  at::manual_seed(1);
  const at::Tensor images = at::rand({48, 3, 8, 10}), labels = at::arange(48).remainder(10);
  const auto make_data = [&] {
    return std::make_shared<TensorData>(std::vector{images, labels}, std::vector<at::Tensor>{},
                                        DataOptions{.batch_size = 8, .resident = "off"});
  };
  const fake::Counts plain = counts_of_fit(*make_data(), images.narrow(0, 0, 1));
  EXPECT_EQ(plain.host_to_device_copies, 2 * 6);
  for (const auto& [name, transform] : every_transform()) {
    SCOPED_TRACE(name);
    TransformedData data(make_data(), {.train = transform});
    const Batch sample{images.narrow(0, 0, 1), labels.narrow(0, 0, 1)};
    const fake::Counts counts =
        counts_of_fit(data, transform->apply(sample, at::rand({1, transform->num_random()}))[0]);
    EXPECT_EQ(counts.host_waits(), 0);
    EXPECT_EQ(counts.item_reads + counts.data_dependent_ops, 0);
    EXPECT_EQ(counts.device_to_host_copies, plain.device_to_host_copies);
    EXPECT_EQ(counts.host_to_device_copies, (transform->num_random() > 0 ? 3 : 2) * 6);
  }
}

// Late copies find memory that a worker overwrites too early.
TEST(FakeRandomNumbers, AreTheSameOnAllDevicesWithAnyNumberOfWorkers) {
  const fake::LateCopies late;
  const auto weights_with = [](std::int64_t num_gpus, std::int64_t num_workers) {
    at::manual_seed(1);
    Augmented data(num_workers);
    return trained(num_gpus, data, std::make_shared<CountsOfLoops>());
  };
  const auto expected = weights_with(0, 0);
  for (const std::int64_t num_workers : {0, 1, 3}) {
    const auto weights = weights_with(1, num_workers);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(weights[i], expected[i])) << num_workers << " workers, " << i;
  }
}

}  // namespace
}  // namespace kindling
