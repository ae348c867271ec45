// Memory of captured steps compared with eager steps.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/nn.h>

#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/nn/classifier.h"
#include "kindling/training/callback.h"
#include "support/live_bytes.h"
#include "training/capture/step_graph.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class EightConvolutions : public Classifier {
 public:
  EightConvolutions() {
    std::int64_t channels = 3;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t out = i < 4 ? 8 : 16;
      layers_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, out, 3).padding(1)));
      layers_->push_back(torch::nn::BatchNorm2d(out));
      layers_->push_back(torch::nn::ReLU());
      if (i == 3) layers_->push_back(torch::nn::MaxPool2d(2));
      channels = out;
    }
    register_module("layers", layers_);
    register_module("head", head_);
  }
  at::Tensor forward(const at::Tensor& images) override {
    return head_->forward(layers_->forward(images).mean({2, 3}));
  }
  bool has_static_graph() const override { return true; }

 private:
  torch::nn::Sequential layers_;
  torch::nn::Linear head_{16, 10};
};

// Three epochs of batches of 32, a short one each, and a validation.
std::int64_t peak_of_fit(const std::shared_ptr<Module>& model, std::vector<std::int64_t> shape,
                         const std::string& step_graph) {
  const auto images = [&](std::int64_t count) {
    shape.front() = count;
    return at::rand(shape);
  };
  TensorData data({images(5 * 32 + 10), at::randint(10, {5 * 32 + 10})}, {images(50), at::randint(10, {50})},
                  {.batch_size = 32});
  TrainerOptions options{.max_epochs = 3};
  options.step_graph = step_graph;
  const LiveBytes bytes;
  Trainer(std::move(options)).fit(model, data);
  return bytes.peak();
}

// Captured steps may need a tenth more: memory that operators allocate themselves is not shared with their
// preallocated outputs.
template <class Model>
void expect_hardly_more_memory(std::vector<std::int64_t> shape) {
  const std::int64_t eager = peak_of_fit(std::make_shared<Model>(), shape, "off"),
                     recorded = peak_of_fit(std::make_shared<Model>(), shape, "on");
  std::cout << "peak " << recorded << " B with captured steps, " << eager << " B without\n";
  EXPECT_LE(10 * recorded, 11 * eager);
  EXPECT_GT(eager, 4 * at::rand(shape).numel());
}

TEST(StepGraphMemory, IsHardlyMoreThanThatOfEagerSteps) {
  expect_hardly_more_memory<EightConvolutions>({32, 3, 32, 32});
  expect_hardly_more_memory<SmallCnn>({32, 1, 28, 28});
  expect_hardly_more_memory<Lenet>({32, 1, 28, 28});
  expect_hardly_more_memory<Mlp>({32, 1, 28, 28});
}

// Live memory after each epoch.
class LiveAfterEpochs : public Callback {
 public:
  explicit LiveAfterEpochs(const LiveBytes& bytes) : bytes_(bytes) {}
  void on_epoch_end(Trainer&, Module&, const Record&) override { after.push_back(bytes_.now()); }
  std::vector<std::int64_t> after;

 private:
  const LiveBytes& bytes_;
};

TEST(StepGraphMemory, DoesNotGrow) {
  TensorData data({at::rand({20, 1, 8, 8}), at::randint(10, {20})},
                  {at::rand({8, 1, 8, 8}), at::randint(10, {8})}, {.batch_size = 8});
  const LiveBytes bytes;
  const auto live = std::make_shared<LiveAfterEpochs>(bytes);
  TrainerOptions options{.max_epochs = 300, .log_every_n_steps = 0, .callbacks = {live}};
  options.step_graph = "on";
  Trainer(std::move(options)).fit(std::make_shared<SmallCnn>(), data);
  ASSERT_EQ(live->after.size(), 300U);
  EXPECT_EQ(live->after[299], live->after[49]);
}

// Live memory after certain steps, counted over all epochs.
class LiveAfterSteps : public Callback {
 public:
  LiveAfterSteps(const LiveBytes& bytes, std::set<std::int64_t> steps)
      : bytes_(bytes), steps_(std::move(steps)) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (steps_.contains(trainer.progress().global_step))
      after.push_back({bytes_.now(), static_cast<std::int64_t>(mallinfo2().uordblks)});
  }
  struct Live {
    std::int64_t tensors, heap;  // bytes
  };
  std::vector<Live> after;

 private:
  const LiveBytes& bytes_;
  std::set<std::int64_t> steps_;
};

// Of a small captured step; `after`: the steps to measure.
std::vector<LiveAfterSteps::Live> live_after(std::int64_t batches, std::int64_t epochs,
                                             std::set<std::int64_t> after) {
  TensorData data({at::rand({2 * batches, 1, 2, 2}), at::randint(10, {2 * batches})}, {}, {.batch_size = 2});
  const LiveBytes bytes;
  const auto live = std::make_shared<LiveAfterSteps>(bytes, std::move(after));
  TrainerOptions options{.max_epochs = epochs, .callbacks = {live}};
  options.step_graph = "on";
  Trainer trainer(std::move(options));
  const SaidBySteps said;
  trainer.fit(std::make_shared<Mlp>(MlpOptions{.hidden = {4}}), data);
  EXPECT_EQ(said.text(), "");  // all are captured
  return live->after;
}

// Each step logs its loss, its accuracy and whether it was finite. The log's memory doubles, from 4,096
// numbers on: 3 · 5,461 and 3 · 10,922 numbers fit into 16,384 and 32,768 of them, with one and two left
// over.
TEST(StepGraphMemory, TheLogTakesFourBytesPerValueAndStep) {
  const auto live = live_after(/*batches=*/13106, /*epochs=*/1, {6553, 13106});
  ASSERT_EQ(live.size(), 2U);
  // The loss, the accuracy, their weights, and whether the step has diverged.
  constexpr std::int64_t kValues = 5, kMoreSteps = 13106 - 6553, kLeftOver = 6 - 3;
  EXPECT_EQ(live[1].tensors - live[0].tensors, 4 * (kValues * kMoreSteps + kLeftOver));
}

// Epochs of 100 steps, whose logs reuse their memory; measured after the last step of an epoch.
TEST(StepGraphMemory, IsTheSameAfterAThousandAndTenThousandSteps) {
  const auto live = live_after(/*batches=*/100, /*epochs=*/100, {1000, 10000});
  ASSERT_EQ(live.size(), 2U);
  EXPECT_EQ(live[1].tensors, live[0].tensors);
  // The smallest block that malloc gives, left behind in every step, would be as much. The board, which
  // keeps points of all epochs, takes a tenth of it.
  constexpr std::int64_t kSmallestBlock = 16;
  EXPECT_LT(live[1].heap - live[0].heap, 9000 * kSmallestBlock);
}

}  // namespace
}  // namespace kindling
