#include "nn/scoped_model_state.h"

#include <ATen/core/grad_mode.h>

#include "base/logging.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

bool has_same_memory(const at::Tensor& tensor, const at::Tensor& data) {
  return tensor.is_alias_of(data) && tensor.storage_offset() == data.storage_offset() &&
         tensor.sizes() == data.sizes() && tensor.strides() == data.strides() &&
         tensor.scalar_type() == data.scalar_type();
}

}  // namespace

ScopedModelState::ScopedModelState(torch::nn::Module& model, Extent extent, HiddenStates aside)
    : model_(model),
      extent_(extent),
      was_training_(model.is_training()),
      hidden_states_(model, /*of_training=*/aside == HiddenStates::all) {
  for (auto& layer : model.modules(/*include_self=*/false)) {
    const bool layer_was_training = layer->is_training();
    layers_.emplace_back(std::move(layer), layer_was_training);
  }
  if (extent >= Extent::values) keep(model.parameters());
  if (extent >= Extent::buffers) keep(model.buffers());
  std::vector<at::Tensor> memory;
  for (const KeptTensor& kept : tensors_) memory.push_back(kept.data);
  values_ = std::make_unique<const TensorSnapshot>(memory);
  if (extent < Extent::everything) return;
  for (const auto& [name, layer] : layers_without_shape(model))
    lazy_.push_back({layer, layer->frozen, layer->type, layer->channels_last});
}

void ScopedModelState::keep(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined())
      tensors_.push_back({.tensor = tensor,
                          .data = tensor.detach(),
                          .grad = tensor.grad(),
                          .requires_grad = tensor.requires_grad()});
}

void ScopedModelState::restore_values() const {
  const at::NoGradGuard no_grad;
  values_->restore();
  for (const KeptTensor& kept : tensors_)
    if (!has_same_memory(kept.tensor, kept.data)) kept.tensor.set_data(kept.data);
}

void ScopedModelState::restore_gradients() {
  for (KeptTensor& kept : tensors_) {
    kept.tensor.requires_grad_(kept.requires_grad);
    kept.tensor.mutable_grad() = kept.grad;
  }
}

void ScopedModelState::restore_modes() {
  if (model_.is_training() != was_training_) model_.train(was_training_);
  for (const auto& [layer, was_training] : layers_)  // parents come first and pass their mode on
    if (layer->is_training() != was_training) layer->train(was_training);
}

ScopedModelState::~ScopedModelState() {
  log_errors("the values of the model could not be restored", [&] { restore_values(); });
  if (extent_ == Extent::everything)
    log_errors("the gradients of the model could not be restored", [&] { restore_gradients(); });
  for (LazyOptions& lazy : lazy_) {
    lazy.layer->dematerialize();
    lazy.layer->frozen = std::move(lazy.frozen);
    lazy.layer->type = lazy.type;
    lazy.layer->channels_last = lazy.channels_last;
  }
  restore_modes();
}

}  // namespace kindling
