#include "kindling/nn/layer_summary.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <sstream>

#include "kindling/models/lenet.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

// "net.0 Linear [4, 2] → [4, 3] 9", a line each.
std::string layer_text(const std::vector<LayerRow>& rows) {
  std::ostringstream text;
  for (const LayerRow& row : rows)
    text << row.name << ' ' << row.type << ' ' << at::IntArrayRef(row.input_shape) << " → "
         << at::IntArrayRef(row.output_shape) << ' ' << row.num_parameters << '\n';
  return text.str();
}

class LayerSummary : public OnDevice {};
KINDLING_RUN_ON_DEVICES(LayerSummary);

// Counts its calls and draws noise in both modes.
struct CountingNet : Classifier {
  explicit CountingNet(bool is_lazy) {
    if (is_lazy)
      lazy = register_module("lazy", LazyLinear(3));
    else
      linear = register_module("linear", torch::nn::Linear(4, 3));
    calls = register_buffer("calls", at::zeros({}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& input) override {
    calls.add_(1);
    had_gradients |= at::GradMode::is_enabled();
    const at::Tensor output = lazy ? lazy->forward(input) : linear->forward(input);
    return output + at::rand_like(output);
  }
  LazyLinear lazy{nullptr};
  torch::nn::Linear linear{nullptr};
  at::Tensor calls;
  bool had_gradients = false;
};

TEST_P(LayerSummary, LeavesBuffersAndRandomNumbers) {
  for (const bool is_lazy : {false, true}) {
    const auto model = std::make_shared<CountingNet>(is_lazy);
    move_to(*model, device_);
    if (is_lazy) model->layer_summary({2, 4});  // draws the weights
    at::manual_seed(3);
    const at::Tensor next = at::rand({3}, at::device(device_));
    at::manual_seed(3);
    model->train();
    model->layer_summary({2, 4});
    EXPECT_EQ(model->calls.item<std::int64_t>(), 0);
    EXPECT_TRUE(at::equal(at::rand({3}, at::device(device_)), next));
    EXPECT_TRUE(model->is_training());
    EXPECT_FALSE(model->had_gradients);
  }
}

TEST_P(LayerSummary, ListsEveryLayerOfAShape) {
  const auto lenet = std::make_shared<Lenet>();
  move_to(*lenet, device_);
  lenet->forward(at::zeros({1, 1, 28, 28}).to(device_));
  EXPECT_EQ(layer_text(lenet->layer_summary({1, 1, 28, 28})),
            "net.0 Conv2d [1, 1, 28, 28] → [1, 6, 28, 28] 156\n"
            "net.1 Sigmoid [1, 6, 28, 28] → [1, 6, 28, 28] 0\n"
            "net.2 AvgPool2d [1, 6, 28, 28] → [1, 6, 14, 14] 0\n"
            "net.3 Conv2d [1, 6, 14, 14] → [1, 16, 10, 10] 2416\n"
            "net.4 Sigmoid [1, 16, 10, 10] → [1, 16, 10, 10] 0\n"
            "net.5 AvgPool2d [1, 16, 10, 10] → [1, 16, 5, 5] 0\n"
            "net.6 Flatten [1, 16, 5, 5] → [1, 400] 0\n"
            "net.7 Linear [1, 400] → [1, 120] 48120\n"
            "net.8 Sigmoid [1, 120] → [1, 120] 0\n"
            "net.9 Linear [1, 120] → [1, 84] 10164\n"
            "net.10 Sigmoid [1, 84] → [1, 84] 0\n"
            "net.11 Linear [1, 84] → [1, 10] 850\n");
  EXPECT_TRUE(lenet->is_training());
}

// x + linear(x), as a layer.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(std::int64_t size) : linear(register_module("linear", LazyLinear(size))) {}
  at::Tensor forward(const at::Tensor& x) { return x + linear->forward(x); }
  LazyLinear linear;
};
TORCH_MODULE(Block);

class WithBlock : public Classifier {
 public:
  WithBlock() : net(register_module("net", torch::nn::Sequential())) {
    net->push_back("block", Block(3));
    net->push_back(torch::nn::BatchNorm1d(3));
    net->push_back(LazyLinear(2));
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  torch::nn::Sequential net;
};

TEST(LayerSummaryOf, BlocksGivesLazyLayersTheirParametersAndLeavesNoTrace) {
  const auto model = std::make_shared<WithBlock>();
  EXPECT_EQ(layer_text(model->layer_summary({4, 3})),
            "net.block Block [4, 3] → [4, 3] 0\n"
            "net.block.linear Linear [] → [] 12\n"
            "net.1 BatchNorm1d [4, 3] → [4, 3] 6\n"
            "net.2 Linear [4, 3] → [4, 2] 8\n");
  EXPECT_EQ(model->named_buffers()["net.1.num_batches_tracked"].item<std::int64_t>(), 0);
}

TEST(LayerSummaryOf, FrozenLayersCountsTrainableParametersBytesAndMultiplyAdds) {
  const auto lenet = std::make_shared<Lenet>();
  lenet->forward(at::zeros({1, 1, 28, 28}));
  lenet->freeze(*lenet->named_modules()["net.0"]);
  const std::vector<LayerRow> rows = lenet->layer_summary({4, 1, 28, 28});
  EXPECT_EQ(rows[0].num_trainable, 0);
  EXPECT_EQ(rows[0].parameter_bytes, 624);
  EXPECT_EQ(rows[0].multiply_adds, 6 * 28 * 28 * 25);  // of one sample
  EXPECT_EQ(rows[1].multiply_adds, 0);
  EXPECT_EQ(rows[3].num_trainable, 2416);
  EXPECT_EQ(rows[3].multiply_adds, 16 * 10 * 10 * 6 * 25);
  EXPECT_EQ(rows[7].multiply_adds, 400 * 120);
  EXPECT_EQ(rows[7].parameter_bytes, 192480);
}

TEST(LayerSummaryOf, LayersWithinABlockHasUnknownMultiplyAdds) {
  const std::vector<LayerRow> rows = std::make_shared<WithBlock>()->layer_summary({4, 3});
  EXPECT_EQ(rows[0].multiply_adds, 0);  // the block's own
  EXPECT_FALSE(rows[1].multiply_adds);
  EXPECT_EQ(rows[2].multiply_adds, 0);
  EXPECT_EQ(rows[3].multiply_adds, 6);
}

// Linear with the weight of another layer.
struct TiedLayerImpl : torch::nn::Module {
  explicit TiedLayerImpl(const at::Tensor& other)
      : weight(register_parameter("weight", other)), bias(register_parameter("bias", at::zeros({3}))) {}
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias); }
  at::Tensor weight, bias;
};
TORCH_MODULE(TiedLayer);

class TiedWeights : public Module {
 public:
  TiedWeights() : net(register_module("net", torch::nn::Sequential())) {
    const torch::nn::Linear first(3, 3);
    net->push_back(first);
    net->push_back(torch::nn::ReLU());
    net->push_back(TiedLayer(first->weight));
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  torch::nn::Sequential net;
};

TEST(LayerSummaryOf, TiedWeightsCountsThemOnce) {
  const auto model = std::make_shared<TiedWeights>();
  const std::vector<LayerRow> rows = layer_summary(*model, Batch{at::ones({2, 3})});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].num_parameters, 12);
  EXPECT_EQ(rows[2].num_parameters, 3);  // its bias
  EXPECT_EQ(rows[2].num_trainable, 3);
  EXPECT_EQ(rows[2].parameter_bytes, 12);
}

// Not a Sequential: the inputs of its layers are unknown.
class TwoBranches : public Module {
 public:
  TwoBranches()
      : left(register_module("left", LazyLinear(1))), right(register_module("right", LazyLinear(1))) {}
  at::Tensor forward(const at::Tensor& x) override { return left->forward(x) + right->forward(x); }
  LazyLinear left, right;
};

TEST(LayerSummaryOf, OtherModelsNamesLayersWithoutShapes) {
  const auto model = std::make_shared<TwoBranches>();
  EXPECT_EQ(layer_text(layer_summary(*model, Batch{at::ones({2, 5})})),
            "left Linear [] → [] 6\nright Linear [] → [] 6\n");
}

}  // namespace
}  // namespace kindling
