// Gradients that are sums over many rows or uses, in fits with 16-bit precisions on the CPU.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/nn/manual_module.h"
#include "kindling/training/callback.h"
#include "support/log_lines.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

constexpr std::int64_t kSequences = 128, kTime = 64;  // 8,192 rows

// An embedding, an encoder layer, layer norm and a head, over sequences of one token.
struct TokenLayersImpl : torch::nn::Module {
  TokenLayersImpl() {
    register_module("embedding", embedding);
    register_module("encoder", encoder);
    register_module("norm", norm);
    register_module("head", head);
    mixer = register_parameter("mixer", at::randn({8, 8}));
  }
  at::Tensor loss(const at::Tensor& tokens, bool encodes = true) {
    const at::Tensor embedded = embedding->forward(tokens).transpose(0, 1);
    const at::Tensor rows = norm->forward(encodes ? encoder->forward(embedded) : at::matmul(embedded, mixer));
    const at::Tensor labels = at::zeros({tokens.numel()}, at::kLong);
    return torch::nn::functional::cross_entropy(head->forward(rows).flatten(0, 1), labels);
  }
  torch::nn::Embedding embedding{4, 8};
  torch::nn::TransformerEncoderLayer encoder{
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0)};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  torch::nn::Linear head{8, 4};
  at::Tensor mixer;
};
TORCH_MODULE(TokenLayers);

struct TokenNet : Module {
  TokenNet() { register_module("layers", layers); }
  at::Tensor training_step(const Batch& batch) override { return layers->loss(batch[0]); }
  TokenLayers layers;
};

// LibTorch's attention compares its inputs on the host, so steps with it are not captured.
struct StaticTokenNet : TokenNet {
  at::Tensor training_step(const Batch& batch) override {
    ++num_calls;
    return layers->loss(batch[0], /*encodes=*/false);
  }
  bool has_static_graph() const override { return true; }
  int num_calls = 0;
};

struct ManualTokenNet : ManualModule {
  ManualTokenNet() { register_module("layers", layers); }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["all"] = std::make_unique<Sgd>(ParameterGroups(*this), SgdOptions{.lr = 0});
    return optimizers;
  }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = layers->loss(batch[0]);
    update("all", loss);
    return loss;
  }
  TokenLayers layers;
};

// A cell in each of 300 steps of time.
struct CellNet : Module {
  CellNet() {
    register_module("cell", cell);
    for (const at::Tensor& parameter : cell->parameters()) parameter.detach().mul_(0.1);
  }
  at::Tensor training_step(const Batch& batch) override {
    at::Tensor state = at::zeros({4, 4}, cell->weight_hh.options()), sum = at::zeros({});
    const at::Tensor input = at::ones({4, 4}, state.options());
    for (int step = 0; step < 300; ++step) {
      state = cell->forward(input, state.to(input.scalar_type()));
      sum = sum + state.to(at::kFloat).sum();
    }
    return sum + 0 * batch[0].to(at::kFloat).sum();
  }
  torch::nn::GRUCell cell{4, 4};
};

struct KeptGradients : Callback {
  void on_before_optimizer_step(Trainer&, Module& model, Optimizer&) override {
    steps.emplace_back();
    for (const auto& item : model.named_parameters()) {
      if (!item.value().grad().defined()) continue;
      steps.back().emplace_back(item.key(), item.value().grad().to(at::kFloat, false, /*copy=*/true));
    }
  }
  std::vector<std::vector<std::pair<std::string, at::Tensor>>> steps;
};

template <class Net>
std::vector<std::vector<std::pair<std::string, at::Tensor>>> gradients_of(
    const std::string& precision, const std::string& step_graph = "off", int* num_calls = nullptr) {
  torch::manual_seed(4);
  const auto model = std::make_shared<Net>();
  const auto gradients = std::make_shared<KeptGradients>();
  TrainerOptions options{
      .max_steps = num_calls != nullptr ? 12 : 1, .precision = precision, .step_graph = step_graph};
  if constexpr (!std::is_base_of_v<ManualModule, Net>) options.optimizer = sgd(0);
  options.callbacks = {gradients};
  TensorData data({at::ones({kSequences, kTime}, at::kLong)}, {},
                  {.batch_size = num_calls != nullptr ? kSequences / 4 : kSequences});
  Trainer(options).fit(model, data);
  if constexpr (std::is_same_v<Net, StaticTokenNet>)
    if (num_calls != nullptr) *num_calls = model->num_calls;
  return gradients->steps;
}

double norm_ratio(const at::Tensor& found, const at::Tensor& expected) {
  return found.norm().item<double>() / expected.norm().item<double>();
}

// The gradient of every weight, those of the attention's queries and keys aside: all rows are equal, so they
// are zero but for rounding.
template <class Net>
void expect_gradients_of_float32(double tolerance, const std::string& precision) {
  const auto expected = gradients_of<Net>("32-true").at(0), found = gradients_of<Net>(precision).at(0);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(norm_ratio(found[i].second, expected[i].second), 1, tolerance)
        << precision << " " << expected[i].first;
}

TEST(WideSumsOfFits, HaveTheGradientsOfFloat32) {
  expect_gradients_of_float32<TokenNet>(0.02, "bf16-mixed");
  expect_gradients_of_float32<ManualTokenNet>(0.02, "bf16-mixed");
  expect_gradients_of_float32<TokenNet>(0.05, "bf16-true");  // all layers round their results
}

TEST(WideSumsOfFits, AreBitIdenticalInReplays) {
  for (const std::string precision : {"bf16-mixed", "16-mixed", "bf16-true"}) {
    const LogLines log(LogLevel::info);
    int eager_calls = 0, replayed_calls = 0;
    const auto eager = gradients_of<StaticTokenNet>(precision, "off", &eager_calls),
               replayed = gradients_of<StaticTokenNet>(precision, "on", &replayed_calls);
    EXPECT_LT(replayed_calls, eager_calls) << (log.texts.empty() ? "" : log.texts.back());
    ASSERT_EQ(eager.size(), replayed.size());
    for (std::size_t step = 0; step < eager.size(); ++step)
      for (std::size_t i = 0; i < eager[step].size(); ++i)
        EXPECT_TRUE(same(replayed[step][i].second, eager[step][i].second)) << eager[step][i].first;
  }
}

// LibTorch's cache of casts would add up the gradients of all uses in bfloat16.
TEST(WideSumsOfFits, AddUpTheUsesOfAWeightInMixedPrecision) {
  const LogLines log;
  expect_gradients_of_float32<CellNet>(0.02, "bf16-mixed");
  EXPECT_TRUE(log.texts.empty()) << log.texts.front();
}

TEST(WideSumsOfFits, WarnOfWeightsWhoseUsesAddUpIn16Bits) {
  const LogLines log;
  gradients_of<CellNet>("bf16-true");
  ASSERT_EQ(log.texts.size(), 1u);
  EXPECT_NE(log.texts[0].find("CellNet::training_step uses the parameter 'cell."), std::string::npos)
      << log.texts[0];
  EXPECT_NE(log.texts[0].find("300 times"), std::string::npos) << log.texts[0];
  EXPECT_NE(log.texts[0].find("precision = \"bf16-mixed\""), std::string::npos) << log.texts[0];
}

}  // namespace
}  // namespace kindling
