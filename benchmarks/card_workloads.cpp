#include "card_workloads.h"

#include <ATen/CPUGeneratorImpl.h>
#include <kindling/optim/adam.h>
#include <kindling/optim/sgd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "workload_parts.h"

namespace kindling_bench {
namespace {

// --- A residual network
// --------------------------------------------------------------------------------------------

torch::nn::Sequential convolution(std::int64_t in, std::int64_t out) {
  return torch::nn::Sequential{torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)),
                               torch::nn::BatchNorm2d(out), torch::nn::ReLU()};
}

class CifarNet : public kindling::Module {
 public:
  CifarNet() {
    const std::int64_t widths[]{3, 64, 128, 128, 128, 256, 512, 512, 512};
    for (std::size_t i = 0; i + 1 < std::size(widths); ++i)
      layers_.push_back(register_module("conv" + std::to_string(i), convolution(widths[i], widths[i + 1])));
    out_ = register_module("out", torch::nn::Linear(512, 10));
  }
  bool has_static_graph() const override { return true; }
  at::Tensor forward(const at::Tensor& images) override {
    const auto layer = [&](std::size_t i, const at::Tensor& x) { return layers_[i]->forward(x); };
    at::Tensor x = at::max_pool2d(layer(1, layer(0, images)), 2);
    x = x + layer(3, layer(2, x));
    x = at::max_pool2d(layer(4, x), 2);
    x = at::max_pool2d(layer(5, x), 2);
    x = x + layer(7, layer(6, x));
    return out_->forward(at::max_pool2d(x, 4).flatten(1)) * 0.125;
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return at::cross_entropy_loss(outputs, labels);
  }

 private:
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear out_{nullptr};
};

class ByteImages : public TensorData {
 public:
  using TensorData::TensorData;
  kindling::Batch on_after_batch_transfer(kindling::Batch batch) override {
    batch.tensors()[0] = batch[0].to(at::kFloat).div_(128).sub_(1);
    return batch;
  }
};

// --- GPT-2
// ------------------------------------------------------------------------------------------------------

constexpr std::int64_t kVocabulary = 50304, kContext = 1024, kWidth = 768, kHeads = 12, kBlocks = 12;

class GptBlock : public torch::nn::Module {
 public:
  GptBlock()
      : norm1_(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        qkv_(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        project_(register_module("project", torch::nn::Linear(kWidth, kWidth))),
        norm2_(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        widen_(register_module("widen", torch::nn::Linear(kWidth, 4 * kWidth))),
        narrow_(register_module("narrow", torch::nn::Linear(4 * kWidth, kWidth))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor between = x + attention(norm1_->forward(x));
    const at::Tensor wide = at::gelu(widen_->forward(norm2_->forward(between)), "tanh");
    return between + narrow_->forward(wide);
  }

 private:
  at::Tensor attention(const at::Tensor& x) {
    const auto heads = qkv_->forward(x).view({x.size(0), x.size(1), 3, kHeads, -1}).permute({2, 0, 3, 1, 4});
    const at::Tensor seen = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], /*attn_mask=*/{},
                                                             /*dropout_p=*/0, /*is_causal=*/true);
    return project_->forward(seen.transpose(1, 2).reshape(x.sizes()));
  }

  torch::nn::LayerNorm norm1_;
  torch::nn::Linear qkv_, project_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear widen_, narrow_;
};

// The token embedding is also the last layer.
class Gpt2 : public kindling::Module {
 public:
  Gpt2()
      : tokens_(register_module("tokens", torch::nn::Embedding(kVocabulary, kWidth))),
        places_(register_module("places", torch::nn::Embedding(kContext, kWidth))) {
    for (std::int64_t i = 0; i < kBlocks; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i), std::make_shared<GptBlock>()));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    const at::NoGradGuard no_grad;
    at::manual_seed(kModelSeed);
    for (const auto& parameter : named_parameters())
      if (parameter.value().dim() > 1)
        parameter.value().normal_(0, 0.02);
      else if (parameter.key().ends_with("bias"))
        parameter.value().zero_();
  }
  bool has_static_graph() const override { return true; }
  at::Tensor forward(const at::Tensor& tokens) override {
    at::Tensor x = tokens_->forward(tokens) + places_->weight.narrow(0, 0, tokens.size(1));
    for (const auto& block : blocks_) x = block->forward(x);
    return at::linear(norm_->forward(x), tokens_->weight);
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) override {
    return at::cross_entropy_loss(outputs.flatten(0, 1), targets.flatten());
  }

 private:
  torch::nn::Embedding tokens_, places_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
};

at::Tensor drawn(std::int64_t end, at::IntArrayRef sizes, at::ScalarType type, at::Generator& generator) {
  return at::randint(end, sizes, generator, at::dtype(type));
}

}  // namespace

Workload card_cifar() {
  constexpr std::int64_t kSteps = 97, kBatchSize = 512;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kDataSeed);
  const at::Tensor images = drawn(256, {kSteps * kBatchSize, 3, 32, 32}, at::kByte, generator);
  const at::Tensor labels = drawn(10, {kSteps * kBatchSize}, at::kLong, generator);
  return {
      .model = seeded<CifarNet>(),
      .data = std::make_shared<ByteImages>(TensorData::Tensors{.train = {images, labels}},
                                           kindling::DataOptions{.batch_size = kBatchSize, .shuffle = false}),
      .optimizer = optimizer<kindling::Sgd>(
          kindling::SgdOptions{.lr = 0.01, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}),
      .channels_last = "on",
      .size = kSteps,
      .unit = "us/step"};
}

Workload card_gpt2() {
  constexpr std::int64_t kSteps = 20, kBatchSize = 16;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kDataSeed);
  const at::Tensor text = drawn(kVocabulary, {kSteps * kBatchSize, kContext + 1}, at::kLong, generator);
  return {.model = seeded<Gpt2>(),
          .data = std::make_shared<TensorData>(
              TensorData::Tensors{.train = {text.narrow(1, 0, kContext).contiguous(),
                                            text.narrow(1, 1, kContext).contiguous()}},
              kindling::DataOptions{.batch_size = kBatchSize, .shuffle = false}),
          .optimizer = optimizer<kindling::AdamW>(kindling::AdamWOptions{.lr = 6e-4, .weight_decay = 0.1}),
          .gradient_clip_val = 1.0,
          .size = kSteps,
          .unit = "us/step"};
}

}  // namespace kindling_bench
