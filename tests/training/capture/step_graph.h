// Runs with and without step capture, for tests that compare them.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/log.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/nn/classifier.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"
#include "kindling/training/callback.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {

// The app log's messages while it exists.
class SaidBySteps {
 public:
  explicit SaidBySteps(LogLevel level = LogLevel::info) {
    configure_log({.level = level});
    set_log_observer([this](LogLevel, const std::string& line) { text_ += line + "\n"; });
  }
  ~SaidBySteps() { set_log_observer({}); }
  SaidBySteps(const SaidBySteps&) = delete;
  SaidBySteps& operator=(const SaidBySteps&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Convolution, batch norm, dropout and linear layers; counts how often its step has been run.
class CountedNet : public Classifier {
 public:
  CountedNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("hidden", hidden);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor seen = torch::max_pool2d(torch::relu(norm->forward(conv->forward(images))), 2);
    return out->forward(drop->forward(torch::relu(hidden->forward(seen.flatten(1)))));
  }
  at::Tensor training_step(const Batch& batch) override {
    ++num_calls;
    return extra ? extra(*this, batch, Classifier::training_step(batch)) : Classifier::training_step(batch);
  }
  bool has_static_graph() const override { return true; }

  std::int64_t num_calls = 0;
  // Additional work of a test.
  std::function<at::Tensor(CountedNet&, const Batch&, at::Tensor loss)> extra{};
  at::Tensor mask = at::full({}, 0.5);  // neither parameter nor buffer
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Dropout drop{0.3};
  torch::nn::Linear hidden{4 * 4 * 4, 16}, out{16, 5};
};

// Tensors with and without a weight, and a number of the host's.
inline void log_beside(CountedNet& net) {
  net.extra = [](CountedNet& model, const Batch& batch, const at::Tensor& loss) {
    model.log("double_loss", 2 * loss.detach());
    model.log("brightness", batch[0].mean(), {.weight = 3});
    model.log("constant", 7);
    return loss;
  };
}

struct GraphFit {
  std::vector<at::Tensor> values;  // weights and buffers
  std::vector<Record> records;
  std::int64_t num_calls = 0;
  std::string said;
};

// A change that a callback makes to a model between two steps.
class ModelMeddler : public Callback {
 public:
  explicit ModelMeddler(std::function<void(CountedNet&, std::int64_t batch)> meddle)
      : meddle_(std::move(meddle)) {}
  void on_train_batch_end(Trainer&, Module& model) override {
    meddle_(dynamic_cast<CountedNet&>(model), ++num_batches_);
  }

 private:
  std::function<void(CountedNet&, std::int64_t)> meddle_;
  std::int64_t num_batches_ = 0;
};

// 6 epochs of 86 images in batches of 16: five, and a short one.
inline GraphFit graph_fit(const std::string& step_graph, TrainerOptions options = {},
                          const std::function<void(CountedNet&)>& prepare = {},
                          LogLevel level = LogLevel::info) {
  const SaidBySteps said(level);
  torch::manual_seed(1);
  const auto model = std::make_shared<CountedNet>();
  TensorData data({at::randn({86, 1, 8, 8}), at::randint(5, {86})},
                  {at::randn({20, 1, 8, 8}), at::randint(5, {20})}, {.batch_size = 16});
  if (prepare) prepare(*model);
  const auto records = std::make_shared<MemoryLogger>();
  if (!options.max_epochs) options.max_epochs = 6;
  options.step_graph = step_graph;
  options.loggers.push_back(records);
  if (!options.optimizer)
    options.optimizer = [](ParameterGroups p) {
      return std::make_unique<Adam>(std::move(p), AdamOptions{.lr = 0.01});
    };
  Trainer trainer(std::move(options));
  trainer.fit(model, data);
  GraphFit fit{
      .values = {}, .records = records->records(), .num_calls = model->num_calls, .said = said.text()};
  for (const at::Tensor& tensor : model->parameters()) fit.values.push_back(tensor.detach().cpu().clone());
  for (const at::Tensor& tensor : model->buffers()) fit.values.push_back(tensor.cpu().clone());
  return fit;
}

// Options that touch what a captured step does.
inline std::vector<std::pair<std::string, TrainerOptions>> step_option_cases() {
  return {{"clipping and step records", {.gradient_clip_val = 0.5, .log_every_n_steps = 2}},
          {"windows", {.accumulate_grad_batches = 2, .log_every_n_steps = 1}},
          {"windows of three with clipping", {.gradient_clip_val = 0.5, .accumulate_grad_batches = 3}},
          {"bf16-mixed", {.precision = "bf16-mixed"}},
          {"16-mixed in windows", {.accumulate_grad_batches = 2, .precision = "16-mixed"}},
          {"64-true", {.precision = "64-true"}},
          {"channels last", {.channels_last = "on"}},
          {"skipping", {.on_nonfinite = "skip"}},
          {"ignoring", {.on_nonfinite = "ignore"}},
          {"skipping spikes", {.on_spike = SpikeOptions{.factor = 1.01, .window = 8, .action = "skip"}}},
          {"reporting spikes in windows",
           {.accumulate_grad_batches = 2, .on_spike = SpikeOptions{.factor = 1.01, .window = 8}}},
          {"norms of gradients", {.log_every_n_steps = 1, .track_grad_norm = 2}},
          {"several validations", {.val_check_interval = 0.5}},
          {"momentum", {.optimizer = [](ParameterGroups p) {
             return std::make_unique<Sgd>(std::move(p), SgdOptions{.lr = 0.05, .momentum = 0.9});
           }}}};
}

// Sample models, by the height and width of their images.
inline std::vector<std::pair<std::int64_t, std::function<std::shared_ptr<Module>()>>> sample_models() {
  return {{8, [] { return std::make_shared<Mlp>(MlpOptions{.hidden = {16}}); }},
          {28, [] { return std::make_shared<Lenet>(); }},
          {8, [] {
             return std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4, 8}, .hidden = 16});
           }}};
}

inline void expect_same_fit(const GraphFit& one, const GraphFit& other) {
  ASSERT_EQ(one.values.size(), other.values.size());
  for (std::size_t i = 0; i < one.values.size(); ++i)
    EXPECT_TRUE(same(one.values[i], other.values[i])) << "tensor " << i;
  ASSERT_EQ(one.records.size(), other.records.size());
  for (std::size_t i = 0; i < one.records.size(); ++i)
    EXPECT_EQ(numbers_of(one.records[i]), numbers_of(other.records[i])) << "record " << i;
}

}  // namespace kindling
