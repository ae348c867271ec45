// Networks of random layers, always the same for a seed.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn.h>

#include <array>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kindling/nn/module.h"

namespace kindling {

constexpr std::int64_t kWidth = 8, kLength = 6, kRows = 12;  // features, steps, samples of a batch

// Layers of one kind, over [batch, steps, features].
using NetLayer = std::function<at::Tensor(const at::Tensor&)>;

class RandomNet : public Module {
 public:
  explicit RandomNet(unsigned seed) : random_(seed) {
    const int num_layers = pick(2, 5);
    for (int i = 0; i < num_layers; ++i) layers_.push_back(residual(layer("layer" + std::to_string(i))));
    head = register_module("head", torch::nn::Linear(kWidth, 4));
    loss_ = pick(0, 3);
  }

  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = x;
    for (const NetLayer& layer : layers_) y = layer(y);
    return head->forward(y.mean(1));
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    const at::Tensor targets = torch::zeros_like(outputs).scatter_(1, labels.unsqueeze(1), 1);
    switch (loss_) {
      case 0:
        return torch::cross_entropy_loss(outputs, labels);
      case 1:
        return torch::mse_loss(outputs, targets);
      case 2:
        return torch::nn::functional::smooth_l1_loss(outputs, targets);
      default:
        return torch::binary_cross_entropy_with_logits(outputs, targets);
    }
  }
  at::Tensor training_step(const Batch& batch) override {
    ++num_calls;
    return Module::training_step(batch);
  }
  std::string text() const { return text_ + ", loss " + std::to_string(loss_); }

  int num_calls = 0;
  torch::nn::Linear head{nullptr};

 private:
  int pick(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }

  NetLayer residual(NetLayer inner) {
    if (pick(0, 2) > 0) return inner;
    text_ += "+";
    return [inner](const at::Tensor& x) { return x + inner(x); };
  }

  NetLayer layer(const std::string& name) {
    static constexpr std::array kKinds{"linear",    "mlp",         "layer norm", "batch norm",
                                       "dropout",   "convolution", "gru",        "lstm",
                                       "attention", "shared",      "activation"};
    const std::size_t kind = static_cast<std::size_t>(pick(0, kKinds.size() - 1));
    text_ += (text_.empty() ? "" : ", ") + std::string(kKinds[kind]);
    switch (kind) {
      case 0:
        return [l = register_module(name, torch::nn::Linear(kWidth, kWidth))](auto& x) mutable {
          return l->forward(x);
        };
      case 1:
        return
            [l = register_module(name, torch::nn::Sequential{torch::nn::Linear(kWidth, 16), torch::nn::GELU(),
                                                             torch::nn::Linear(16, kWidth)})](
                auto& x) mutable { return l->forward(x); };
      case 2:
        return [l = register_module(name, torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))](
                   auto& x) mutable { return l->forward(x); };
      case 3:
        return [l = register_module(name, torch::nn::BatchNorm1d(kWidth))](auto& x) mutable {
          return l->forward(x.transpose(1, 2)).transpose(1, 2);
        };
      case 4:
        return
            [l = register_module(name, torch::nn::Dropout(0.2))](auto& x) mutable { return l->forward(x); };
      case 5:
        return [l = register_module(
                    name, torch::nn::Conv1d(torch::nn::Conv1dOptions(kWidth, kWidth, 3).padding(1)))](
                   auto& x) mutable { return l->forward(x.transpose(1, 2)).transpose(1, 2); };
      case 6:
        return [l = register_module(name,
                                    torch::nn::GRU(torch::nn::GRUOptions(kWidth, kWidth).batch_first(true)))](
                   auto& x) mutable { return std::get<0>(l->forward(x)); };
      case 7:
        return [l = register_module(
                    name, torch::nn::LSTM(torch::nn::LSTMOptions(kWidth, kWidth).batch_first(true)))](
                   auto& x) mutable { return std::get<0>(l->forward(x)); };
      case 8:
        return [l = register_module(name, torch::nn::Linear(kWidth, 3 * kWidth))](auto& x) mutable {
          const auto parts =
              l->forward(x).view({x.size(0), kLength, 2, 3 * kWidth / 2}).transpose(1, 2).chunk(3, -1);
          return torch::scaled_dot_product_attention(parts[0], parts[1], parts[2])
              .transpose(1, 2)
              .reshape(x.sizes());
        };
      case 9:
        return [l = register_module(name, torch::nn::Linear(kWidth, kWidth))](auto& x) mutable {
          return torch::tanh(l->forward(torch::relu(l->forward(x))));
        };
      default:
        return [which = pick(0, 4)](auto& x) {
          return which == 0   ? torch::relu(x)
                 : which == 1 ? torch::sigmoid(x)
                 : which == 2 ? torch::tanh(x)
                 : which == 3 ? torch::silu(x)
                              : torch::leaky_relu(x, 0.1);
        };
    }
  }

  std::mt19937 random_;
  std::vector<NetLayer> layers_;
  int loss_ = 0;
  std::string text_;
};

}  // namespace kindling
