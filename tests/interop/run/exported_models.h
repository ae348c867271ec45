#pragma once

#include <torch/nn.h>

#include "kindling/nn/module.h"

// Typical models written with torch::nn.
namespace kindling::exported_models {

struct BlockImpl : torch::nn::Module {
  BlockImpl(int in, int out, int stride)
      : conv1(conv(in, out, 3, stride, 1)), conv2(conv(out, out, 3, 1, 1)), bn1(out), bn2(out) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    if (stride != 1 || in != out)
      down = register_module("downsample",
                             torch::nn::Sequential{conv(in, out, 1, stride, 0), torch::nn::BatchNorm2d(out)});
  }
  static torch::nn::Conv2d conv(int in, int out, int size, int stride, int padding) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(padding).bias(false));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn2(conv2(bn1(conv1(x)).relu_()));
    y += down ? down->forward(x) : x;
    return y.relu_();
  }
  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d bn1, bn2;
  torch::nn::Sequential down{nullptr};
};
TORCH_MODULE(Block);

struct ResNet : Module {
  ResNet() {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("layers", layers);
    register_module("fc", fc);
  }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor first = torch::max_pool2d(torch::relu(bn1(conv1(images))), 3, 2, 1);
    return fc(torch::flatten(torch::adaptive_avg_pool2d(layers->forward(first), {1, 1}), 1));
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return torch::nn::functional::cross_entropy(outputs, labels);
  }
  torch::nn::Conv2d conv1{BlockImpl::conv(3, 8, 3, 1, 1)};
  torch::nn::BatchNorm2d bn1{8};
  torch::nn::Sequential layers{Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1)};
  torch::nn::Linear fc{16, 10};
};

struct Gru : Module {
  Gru() {
    register_module("gru", gru);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& series) override {
    return head(std::get<0>(gru->forward(series)).select(1, -1));
  }
  torch::nn::GRU gru{torch::nn::GRUOptions(8, 24).num_layers(2).batch_first(true)};
  torch::nn::Linear head{24, 3};
};

struct Lstm : Module {
  Lstm() {
    register_module("words", words);
    register_module("lstm", lstm);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& ids) override { return head(std::get<0>(lstm->forward(words(ids)))); }
  torch::nn::Embedding words{50, 16};
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(16, 24).num_layers(2).batch_first(true).dropout(0.1)};
  torch::nn::Linear head{24, 50};
};

// Its head is the embedding's weight, registered under two names.
struct Gpt : Module {
  static constexpr std::int64_t kHeads = 4, kChannels = 32, kWords = 50;

  Gpt() {
    register_module("wte", wte);
    register_module("wpe", wpe);
    register_module("ln_1", ln1);
    register_module("ln_2", ln2);
    register_module("ln_f", lnf);
    register_module("qkv", qkv);
    register_module("proj", proj);
    register_module("up", up);
    register_module("down", down);
    register_module("drop", drop);
    register_parameter("head", wte->weight);
  }
  at::Tensor forward(const at::Tensor& ids) override {
    const auto batch = ids.size(0), length = ids.size(1);
    at::Tensor x = drop(wte(ids) + wpe(torch::arange(length, ids.options())));
    const auto parts = qkv(ln1(x)).split(kChannels, 2);
    const auto heads = [&](const at::Tensor& t) {
      return t.view({batch, length, kHeads, kChannels / kHeads}).transpose(1, 2);
    };
    const at::Tensor attended =
        torch::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.0, true);
    const at::Tensor rows = attended.transpose(1, 2).contiguous().view({batch * length, kChannels});
    x = x + drop(proj(rows).view({batch, length, kChannels}));
    x = x + drop(down(torch::gelu(up(ln2(x)), "tanh")));
    return torch::linear(lnf(x), wte->weight);
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return torch::nn::functional::cross_entropy(outputs.reshape({-1, kWords}), labels.reshape({-1}));
  }
  torch::nn::Embedding wte{kWords, kChannels}, wpe{16, kChannels};
  torch::nn::LayerNorm ln1{norm()}, ln2{norm()}, lnf{norm()};
  torch::nn::Linear qkv{kChannels, 3 * kChannels}, proj{kChannels, kChannels}, up{kChannels, 4 * kChannels},
      down{4 * kChannels, kChannels};
  torch::nn::Dropout drop{0.1};

 private:
  static torch::nn::LayerNorm norm() {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kChannels}));
  }
};

struct Encoder : Module {
  Encoder() {
    register_module("enc", enc);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) override { return head(enc->forward(x.transpose(0, 1)).mean(0)); }
  torch::nn::TransformerEncoderLayer enc{
      torch::nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64)};
  torch::nn::Linear head{32, 5};
};

// Images and a row of numbers each.
struct TwoInputs : Module {
  TwoInputs() {
    register_module("conv", conv);
    register_module("row", row);
    register_module("head", head);
  }
  at::Tensor forward_inputs(const Batch& batch) override {
    const at::Tensor image = torch::relu(conv(batch[0])).mean({2, 3}), numbers = torch::tanh(row(batch[1]));
    return head(torch::cat({image, numbers}, 1) * 0.5);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3)};
  torch::nn::Linear row{6, 4}, head{8, 3};
};

// A map in, a map out; a mask of the batch's.
struct Dictionaries : torch::nn::Module {
  Dictionaries() {
    register_module("words", words);
    register_module("head", head);
    register_buffer("scale", torch::full({12}, 2.0));
  }
  Batch run(const Batch& batch) {
    const at::Tensor mask = batch["mask"].unsqueeze(2), read = words(batch["ids"]) * scale;
    const at::Tensor mean = read.masked_fill(mask, 0.0).sum(1) / (~mask).sum(1).clamp_min(1);
    return Batch::map({{"logits", Batch::leaf(head(mean))}, {"pooled", Batch::leaf(mean)}});
  }
  torch::nn::Embedding words{50, 12};
  torch::nn::Linear head{12, 4};
  at::Tensor scale{torch::full({12}, 2.0)};
};

// Unusual forward functions; 0, 1 and 7 can be exported nevertheless.
struct Trap : Module {
  explicit Trap(int the_kind) : kind(the_kind) { register_module("l", l); }
  at::Tensor forward(const at::Tensor& x) override {
    switch (kind) {
      case 0:
        return l(x.variable_data());
      case 1:
        return l(x) * torch::tensor({1.F, 2.F, 3.F, 4.F});
      case 2: {
        const at::Tensor y = l(x);
        return y * y.sum().item<float>();
      }
      case 3:
        return l(x) / static_cast<double>(x.size(0));
      case 4:
        return torch::stack(l(x).unbind(0));
      case 5:
        return torch::stack(l(x).chunk(x.size(0), 0));
      case 6:
        return l(x).slice(0, 0, x.size(0) / 2);
      default: {
        at::Tensor y = l(x);
        y.select(1, 0).mul_(2).add_(y.select(1, 1));
        y.index_put_({y > 0.5}, 0.25);
        return y + torch::eye(4).slice(0, 1, 2);
      }
    }
  }
  torch::nn::Linear l{4, 4};
  int kind;
};

}  // namespace kindling::exported_models
