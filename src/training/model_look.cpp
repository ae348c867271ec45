#include "training/model_look.h"

#include <algorithm>

namespace kindling {

std::vector<ModelLook::Seen> ModelLook::seen(const std::vector<at::Tensor>& tensors) {
  std::vector<Seen> seen;
  for (const at::Tensor& tensor : tensors)
    seen.push_back({tensor.unsafeGetTensorImpl(), tensor.const_data_ptr(), tensor.requires_grad()});
  return seen;
}

bool ModelLook::is_same(const Seen& before, const at::Tensor& now) {
  return before.data == now.const_data_ptr() && before.requires_grad == now.requires_grad();
}

ModelLook::ModelLook(const torch::nn::Module& model)
    : parameters_(model.parameters()),
      buffers_(model.buffers()),
      seen_parameters_(seen(parameters_)),
      seen_buffers_(seen(buffers_)),
      layers_(model.modules()) {
  for (const auto& layer : layers_) is_training_.push_back(layer->is_training());
}

bool ModelLook::holds() const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i]->is_training() != is_training_[i]) return false;
  const auto is_same = [](const Seen& before, const at::Tensor& now) {
    return ModelLook::is_same(before, now);
  };
  return std::ranges::equal(seen_parameters_, parameters_, is_same) &&
         std::ranges::equal(seen_buffers_, buffers_, is_same);
}

bool ModelLook::has_same_parts(const torch::nn::Module& model) const {
  const auto are_same = [](const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
    return std::ranges::equal(one, other,
                              [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  };
  return model.modules() == layers_ && are_same(model.parameters(), parameters_) &&
         are_same(model.buffers(), buffers_);
}

}  // namespace kindling
