// Recorded steps against steps that are not recorded.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <chrono>
#include <cstdio>

#include "kindling/nn/classifier.h"
#include "kindling/nn/lenet.h"
#include "kindling/nn/mlp.h"
#include "kindling/optim/adam.h"
#include "training/small_fit.h"

namespace kindling {
namespace {

struct Mixed : Classifier {
  Mixed() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("hidden", hidden);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = torch::max_pool2d(torch::relu(norm->forward(conv->forward(images))), 2);
    x = torch::relu(hidden->forward(x.flatten(1)));
    return out->forward(drop->forward(x));
  }
  bool static_step() const override { return true; }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 8, 3).padding(1)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Dropout drop{0.3};
  torch::nn::Linear hidden{8 * 4 * 4, 32}, out{32, 10};
};

std::vector<at::Tensor> trained(const std::string& step_graph, std::int64_t window) {
  torch::manual_seed(1);
  auto model = std::make_shared<Mixed>();
  TensorData data({torch::randn({16 * 5 + 6, 1, 8, 8}), torch::randint(10, {16 * 5 + 6})}, {},
                  {.batch_size = 16, .shuffle = true});
  Trainer trainer(
      {.max_epochs = 4,
       .gradient_clip_val = 1.0,
       .accumulate_grad_batches = window,
       .step_graph = step_graph,
       .optimizer = [](ParameterGroups p) { return std::make_unique<Adam>(std::move(p), AdamOptions{.lr = 0.01}); }});
  trainer.fit(model, data);
  auto values = model->parameters();
  for (auto& buffer : model->buffers()) values.push_back(buffer);
  return values;
}

TEST(StepGraph, GivesTheSameBits) {
  for (const std::int64_t window : {1, 2}) {
    const auto eager = trained("off", window), recorded = trained("on", window);
    ASSERT_EQ(eager.size(), recorded.size());
    for (std::size_t i = 0; i < eager.size(); ++i)
      EXPECT_TRUE(eager[i].equal(recorded[i])) << window << " " << i;
  }
}

}  // namespace
}  // namespace kindling
