#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string_view>

#include "kindling/base/export.h"
#include "kindling/nn/trainer_view.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// A model and how it learns: derive, write forward() and loss(), and override the steps that differ. Make it
// with std::make_shared. The steps run on the device of the trainer, with every tensor of the batch already
// there, and must not read a tensor on the host (no item(), no printing of values): that would make the host
// wait in every step.
class KINDLING_API Module : public torch::nn::Module {
 public:
  ~Module() override;

  // One input [batch, …] → outputs. The default throws Error: a model overrides this or forward_inputs().
  virtual at::Tensor forward(const at::Tensor& input);
  // The inputs of a batch → outputs. The default gives the first tensor of the batch to forward().
  virtual at::Tensor forward_inputs(const Batch& batch);
  // Scalar loss, the mean over the batch. The default throws Error.
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels);

  // One batch → the scalar to minimise; the trainer logs it as train_loss. Default:
  // loss(forward_inputs(batch), labels).
  virtual at::Tensor training_step(const Batch& batch);
  // One batch, without gradients, in evaluation mode; logs what is to be seen. Default: val_loss and
  // test_loss.
  virtual void validation_step(const Batch& batch);
  virtual void test_step(const Batch& batch);
  // One batch → what predict() collects, [batch, …]. Default: forward_inputs(batch).
  virtual at::Tensor predict_step(const Batch& batch);

  // Used when neither the trainer's options nor the config name an optimizer. The default, nullptr, means
  // Adam with lr 1e-3.
  virtual std::unique_ptr<Optimizer> configure_optimizers();

  // Logs one number of a step, on any device, without reading it: the trainer writes it into its log on the
  // device and reports the mean over the epoch, weighted by samples. Outside of a trainer's loops nothing
  // happens.
  void log(std::string_view name, const at::Tensor& value) const { view_.log(name, value); }

  // What can be seen of the trainer; set by Trainer::prepare_model.
  const TrainerView& trainer() const noexcept { return view_; }
  void set_trainer(TrainerView view) { view_ = std::move(view); }

 private:
  TrainerView view_;
};

}  // namespace kindling
