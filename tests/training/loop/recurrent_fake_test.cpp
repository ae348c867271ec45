// Recurrent models and activation checkpoints keep the rule that nothing waits between batches, and how much
// memory a checkpoint saves, both counted by the device.
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/nn/activation_checkpoint.h"
#include "kindling/tensors/move.h"
#include "training/loop/recurrent_fit.h"

namespace kindling {
namespace {

// Counts of an epoch's steps, from its start to its last one.
struct StepCounter : Callback {
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().batch == trainer.progress().num_train_batches) epochs.push_back(fake::counts());
  }
  std::vector<fake::Counts> epochs;
};

void expect_no_wait(Module& model, DataModule& data, std::int64_t copies_of_an_epoch) {
  const auto counter = std::make_shared<StepCounter>();
  Trainer({.max_epochs = 3, .num_gpus = 1, .optimizer = recurrent_rule(), .callbacks = {counter}})
      .fit(std::static_pointer_cast<Module>(model.shared_from_this()), data);
  ASSERT_EQ(counter->epochs.size(), 3u);
  for (const fake::Counts& epoch : counter->epochs) {
    EXPECT_EQ(epoch.host_waits() + epoch.item_reads + epoch.data_dependent_ops, 0);
    EXPECT_EQ(epoch.blocking_host_to_device_copies + epoch.device_to_host_copies, 0);
    EXPECT_EQ(epoch.host_to_device_copies, copies_of_an_epoch);
  }
}

TEST(FakeRecurrent, CarriesItsStateWithoutAWait) {
  WindowData data;
  expect_no_wait(*std::make_shared<Predictor>(), data, 2 * 20);
}

// Values, index and labels move, the lengths do not.
TEST(FakeRecurrent, PacksWithoutAWait) {
  SignData data;
  expect_no_wait(*std::make_shared<SignPredictor>(), data, 3 * 2);
  const Batch batch =
      Trainer({.num_gpus = 1}).prepare_batch(Batch::list({Sequence::padded({at::ones({3, 2})}).to_batch()}));
  const Sequence sequence = Sequence::of(batch.part(0));
  EXPECT_TRUE(sequence.lengths.is_cpu());
  EXPECT_EQ(sequence.values.device(), fake::device());
  fake::reset_counts();
  sequence.unpack(sequence.packed());
  sequence.last(sequence.values);
  sequence.mask();
  EXPECT_EQ(fake::counts().host_waits() + fake::counts().blocking_host_to_device_copies, 0);
}

// A sequence of layers that may be nested in a Sequential, unlike a Sequential.
struct LayersInARowImpl : torch::nn::SequentialImpl {
  at::Tensor forward(const at::Tensor& x) { return torch::nn::SequentialImpl::forward(x); }
};
TORCH_MODULE(LayersInARow);

// A deep net of blocks of which each keeps several activations, in segments of `depth / num_segments`.
struct DeepNet : Module {
  DeepNet(int depth, int num_segments) : net(register_module("net", torch::nn::Sequential())) {
    for (int segment = 0; segment < std::max(num_segments, 1); ++segment) {
      const auto fill = [&](auto part) {
        for (int i = 0; i < depth / std::max(num_segments, 1); ++i) {
          part->push_back(torch::nn::Linear(16, 16));
          part->push_back(torch::nn::BatchNorm1d(16));
          part->push_back(torch::nn::Dropout(0.1));
          part->push_back(torch::nn::Tanh());
        }
        net->push_back(part);
      };
      if (num_segments > 0)
        fill(ActivationCheckpoint<torch::nn::Sequential>());
      else
        fill(LayersInARow());
    }
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) override {
    return at::mse_loss(outputs, targets);
  }
  torch::nn::Sequential net;
};

// Peak memory of a forward and backward pass, in addition to the memory before and after it.
std::int64_t peak_of(int num_segments) {
  const auto net = std::make_shared<DeepNet>(32, num_segments);
  move_to(*net, fake::device());
  const at::Tensor x = move_to(at::ones({512, 16}), fake::device());
  for (int pass = 0; pass < 2; ++pass) {  // the first makes the gradients
    fake::reset_counts();
    const std::int64_t before = fake::counts().live_bytes[0];
    net->loss(net->forward(x), x).backward();
    if (pass == 1) return fake::counts().peak_bytes[0] - before;
  }
  return 0;
}

TEST(FakeActivationCheckpoint, HalvesTheMemoryOfADeepNet) {
  const std::int64_t plain = peak_of(0), in_eight = peak_of(8);
  std::cout << "peak of a deep net: " << plain / 1024 << " KiB, in 8 segments " << in_eight / 1024
            << " KiB\n";
  EXPECT_LT(in_eight, plain / 2);
  EXPECT_GT(plain, 32 * 3 * 512 * 16 * 4) << "the net keeps what it computes";
}

TEST(FakeActivationCheckpoint, NeverWaits) {
  struct Ones : DataModule {
    std::shared_ptr<DataLoader> train_dataloader() override {
      return get_tensorloader({at::ones({20, 16}), at::ones({20, 16})}, false);
    }
    Ones() : DataModule({.batch_size = 4, .resident = "off"}) {}
  } data;
  expect_no_wait(*std::make_shared<DeepNet>(4, 2), data, 2 * 5);
}

}  // namespace
}  // namespace kindling
