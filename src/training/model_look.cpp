#include "training/model_look.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace kindling {
namespace {

bool is_plain(const at::Tensor& tensor) { return tensor.layout() == at::kStrided && tensor.has_storage(); }

const void* data_of(const at::Tensor& tensor) { return is_plain(tensor) ? tensor.const_data_ptr() : nullptr; }

bool has_hooks(const at::Tensor& tensor) {
  return tensor.requires_grad() && (!torch::autograd::impl::hooks(tensor).empty() ||
                                    torch::autograd::impl::post_acc_grad_hooks(tensor) != nullptr);
}

}  // namespace

std::vector<ModelLook::Seen> ModelLook::seen(const std::vector<at::Tensor>& tensors) {
  std::vector<Seen> seen;
  for (const at::Tensor& tensor : tensors)
    seen.push_back(
        {tensor.unsafeGetTensorImpl(), data_of(tensor), tensor.requires_grad(), has_hooks(tensor)});
  return seen;
}

bool ModelLook::is_same(const Seen& before, const at::Tensor& now) {
  return before.data == data_of(now) && before.requires_grad == now.requires_grad() &&
         before.has_hooks == has_hooks(now);
}

// Each tensor once, by however many names the model knows it.
std::vector<at::Tensor> ModelLook::distinct(std::vector<at::Tensor> tensors) {
  std::unordered_set<const c10::TensorImpl*> known;
  std::erase_if(tensors,
                [&](const at::Tensor& tensor) { return !known.insert(tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

ModelLook::ModelLook(const torch::nn::Module& model)
    : parameters_(distinct(model.parameters())),
      buffers_(distinct(model.buffers())),
      seen_parameters_(seen(parameters_)),
      seen_buffers_(seen(buffers_)),
      layers_(model.modules()) {
  for (const auto& layer : layers_) is_training_.push_back(layer->is_training());
}

std::string ModelLook::why_not() const {
  const auto has_hook = [](const Seen& seen) { return seen.has_hooks; };
  if (std::ranges::any_of(seen_parameters_, has_hook)) return "a parameter has a hook";
  if (!std::ranges::all_of(parameters_, is_plain) || !std::ranges::all_of(buffers_, is_plain))
    return "the model has a tensor that is not dense";
  return {};
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
  return model.modules() == layers_ && are_same(distinct(model.parameters()), parameters_) &&
         are_same(distinct(model.buffers()), buffers_);
}

}  // namespace kindling
