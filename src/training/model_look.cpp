#include "training/model_look.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>

namespace kindling {

ModelLook::Seen ModelLook::seen(const at::Tensor& tensor) {
  namespace autograd = torch::autograd::impl;
  const bool learns = tensor.requires_grad();
  return {.data = tensor.const_data_ptr(),
          .requires_grad = learns,
          .has_hooks = learns && (!autograd::hooks(tensor).empty() ||
                                  autograd::post_acc_grad_hooks(tensor) != nullptr)};
}

ModelLook::ModelLook(const torch::nn::Module& model)
    : parameters_(model.parameters()), buffers_(model.buffers()), layers_(model.modules()) {
  std::ranges::transform(parameters_, std::back_inserter(seen_parameters_), seen);
  std::ranges::transform(buffers_, std::back_inserter(seen_buffers_), seen);
  for (const auto& layer : layers_) is_training_.push_back(layer->is_training());
}

bool ModelLook::holds() const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i]->is_training() != is_training_[i]) return false;
  return std::ranges::equal(seen_parameters_, parameters_, {}, {}, seen) &&
         std::ranges::equal(seen_buffers_, buffers_, {}, {}, seen);
}

bool ModelLook::has_hooks() const { return std::ranges::any_of(seen_parameters_, &Seen::has_hooks); }

bool ModelLook::has_same_parts(const torch::nn::Module& model) const {
  const auto are_same = [](const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
    return std::ranges::equal(one, other,
                              [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  };
  return model.modules() == layers_ && are_same(model.parameters(), parameters_) &&
         are_same(model.buffers(), buffers_);
}

}  // namespace kindling
