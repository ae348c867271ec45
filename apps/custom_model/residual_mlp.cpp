#include "residual_mlp.h"

#include <kindling/optim/adam.h>

ResidualMlp::ResidualMlp(ResidualMlpOptions options)
    : first_(register_module("first", kindling::LazyLinear(options.width))),
      last_(register_module("last", kindling::LazyLinear(options.num_classes))),
      hidden_(register_module("hidden", torch::nn::ModuleList())) {
  for (std::int64_t i = 0; i < options.depth; ++i) hidden_->push_back(kindling::LazyLinear(options.width));
}

torch::Tensor ResidualMlp::forward(const torch::Tensor& inputs) {
  torch::Tensor x = first_->forward(inputs).relu();
  for (const auto& layer : *hidden_) x = x + layer->as<kindling::LazyLinear>()->forward(x).relu();
  log("activation",
      x.detach().abs().mean());  // appears in the table and in metrics.jsonl, without waiting for the device
  return last_->forward(x);
}

std::unique_ptr<kindling::Optimizer> ResidualMlp::configure_optimizers() {
  return std::make_unique<kindling::AdamW>(*this, kindling::AdamWOptions{.lr = 0.01});
}
