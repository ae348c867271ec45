#include "training/model_look.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

namespace kindling {
namespace {

bool is_plain(const at::Tensor& tensor) { return tensor.layout() == at::kStrided && tensor.has_storage(); }

const void* data_of(const at::Tensor& tensor) { return is_plain(tensor) ? tensor.const_data_ptr() : nullptr; }

bool has_hooks(const at::Tensor& tensor) {
  return tensor.requires_grad() && (!torch::autograd::impl::hooks(tensor).empty() ||
                                    torch::autograd::impl::post_acc_grad_hooks(tensor) != nullptr);
}

// Each tensor once, by however many names the model knows it.
std::vector<at::Tensor> distinct(std::vector<at::Tensor> tensors) {
  std::unordered_set<const c10::TensorImpl*> known;
  std::erase_if(tensors,
                [&](const at::Tensor& tensor) { return !known.insert(tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

// A tensor may get another look at the memory that it has.
std::uint64_t layout_of(const at::Tensor& tensor) {
  auto hash = static_cast<std::uint64_t>(tensor.scalar_type());
  if (tensor.layout() != at::kStrided) return hash;
  const auto take = [&hash](std::int64_t number) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15U;
  };
  for (const std::int64_t size : tensor.sizes()) take(size);
  for (const std::int64_t stride : tensor.strides()) take(stride);
  return hash;
}

}  // namespace

ModelLook::Seen ModelLook::seen(const at::Tensor& tensor) {
  return {.data = data_of(tensor),
          .layout = layout_of(tensor),
          .requires_grad = tensor.requires_grad(),
          .has_hooks = has_hooks(tensor)};
}

ModelLook::ModelLook(const torch::nn::Module& model)
    : parameters_(distinct(model.parameters())),
      buffers_(distinct(model.buffers())),
      layers_(model.modules()) {
  std::ranges::transform(parameters_, std::back_inserter(seen_parameters_), seen);
  std::ranges::transform(buffers_, std::back_inserter(seen_buffers_), seen);
  for (const auto& layer : layers_) is_training_.push_back(layer->is_training());
}

std::string ModelLook::why_not() const {
  if (std::ranges::any_of(seen_parameters_, &Seen::has_hooks)) return "a parameter has a hook";
  if (!std::ranges::all_of(parameters_, is_plain) || !std::ranges::all_of(buffers_, is_plain))
    return "the model has a tensor that is not dense";
  return {};
}

bool ModelLook::holds() const {
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (layers_[i]->is_training() != is_training_[i]) return false;
  return std::ranges::equal(seen_parameters_, parameters_, {}, {}, seen) &&
         std::ranges::equal(seen_buffers_, buffers_, {}, {}, seen);
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
