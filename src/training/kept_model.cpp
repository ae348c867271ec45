#include "training/kept_model.h"

#include <ATen/core/grad_mode.h>

#include "tensors/state_fit.h"

namespace kindling {

KeptModel::KeptModel(Module& model, Device device)
    : model_(model),
      carried_(model),
      view_(model.trainer()),
      board_(std::exchange(model.board(), ProgressBoard(model.board().options()))),
      random_state_(device) {
  for (const at::Tensor& parameter : model.parameters()) keep(parameter);
  for (const at::Tensor& buffer : model.buffers()) keep(buffer);
  for (const auto& [name, layer] : layers_without_shape(model))
    lazy_.push_back({layer, layer->frozen, layer->type, layer->channels_last});
  for (auto& module : model.modules()) {
    const bool is_training = module->is_training();
    modes_.emplace_back(std::move(module), is_training);
  }
}

void KeptModel::keep(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::NoGradGuard no_grad;
  tensors_.push_back({.tensor = tensor,
                      .data = tensor.detach(),
                      .values = tensor.detach().clone(),
                      .grad = tensor.grad(),
                      .requires_grad = tensor.requires_grad()});
}

KeptModel::~KeptModel() {
  const at::NoGradGuard no_grad;
  for (KeptTensor& kept : tensors_) {
    kept.data.copy_(kept.values);
    kept.tensor.set_data(kept.data);
    kept.tensor.requires_grad_(kept.requires_grad);
    kept.tensor.mutable_grad() = kept.grad;
  }
  for (LazyOptions& lazy : lazy_) {
    lazy.layer->dematerialize();
    lazy.layer->frozen = std::move(lazy.frozen);
    lazy.layer->type = lazy.type;
    lazy.layer->channels_last = lazy.channels_last;
  }
  for (const auto& [module, was_training] : modes_)  // parents come first and pass their mode on
    if (module->is_training() != was_training) module->train(was_training);
  carried_.put_back();
  model_.set_trainer(std::move(view_));
  model_.board() = std::move(board_);
}

}  // namespace kindling
