#include "training/step.h"

#include <ATen/core/grad_mode.h>

#include <set>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/clip.h"
#include "training/host_wait_watch.h"

namespace kindling {

std::vector<at::Tensor> trainable_parameters(const Module& model) {
  std::vector<at::Tensor> parameters;
  std::set<const at::TensorImpl*> known;  // tied weights are registered twice and updated once, as in Python
  for (const auto& parameter : model.parameters())
    if (parameter.requires_grad() && known.insert(parameter.unsafeGetTensorImpl()).second)
      parameters.push_back(parameter);
  return parameters;
}

Step::Step(std::shared_ptr<Module> model, const TrainerOptions& options, DeviceLog& log)
    : model_(std::move(model)), options_(options), log_(log) {
  log_.column("train_loss");  // comes first in records
}

void Step::run(const Batch& batch, bool is_watched) {
  const at::AutoGradMode gradients(true);  // the caller may have switched them off
  if (optimizer_) optimizer_->zero_grad();
  const at::Tensor loss =
      is_watched && !warned_of_wait_ ? watched_training_step(batch) : model_->training_step(batch);
  if (!optimizer_) make_optimizer();
  require_scalar(loss);
  loss.backward();
  log_.mark("train_loss", loss);
  if (options_.gradient_clip_val > 0) {
    const at::Tensor norm = clip_grad_norm(optimizer_->gradients(), options_.gradient_clip_val);
    if (options_.log_every_n_steps > 0 && norm.defined()) log_.mark("grad_norm", norm);
  }
  lr_ = lr_at(schedule_step_);
  optimizer_->set_lr(lr_);
  optimizer_->step();
  log_.write_row(static_cast<double>(batch.num_samples()));
}

at::Tensor Step::watched_training_step(const Batch& batch) {
  const HostWaitWatch watch;
  at::Tensor loss = model_->training_step(batch);
  if (!watch.found().empty()) {
    warned_of_wait_ = true;
    log_warning("training_step calls " + watch.found() +
                ", which makes the host wait for the device in every step; log(name, value) reports a number "
                "without");
  }
  return loss;
}

void Step::set_schedule_point(std::int64_t step, std::int64_t total_steps) {
  schedule_step_ = step;
  schedule_total_ = total_steps;
}

double Step::lr_at(std::int64_t step) const {
  if (!options_.schedule) return base_lr_;
  return options_.schedule({.step = step, .total_steps = schedule_total_, .base_lr = base_lr_});
}

void Step::make_optimizer() {
  std::vector<at::Tensor> parameters = trainable_parameters(*model_);
  if (options_.optimizer)
    optimizer_ = options_.optimizer(std::move(parameters));
  else if (!(optimizer_ = model_->configure_optimizers()))
    optimizer_ = std::make_unique<Adam>(std::move(parameters));
  base_lr_ = optimizer_->lr();
  optimizer_->zero_grad();  // what an earlier user of the model has left
}

void Step::require_scalar(const at::Tensor& loss) const {
  if (loss.defined() && loss.numel() == 1 && loss.requires_grad()) return;
  std::string found = "an undefined tensor";
  if (loss.defined())
    found = loss.numel() != 1 ? "a tensor of " + std::to_string(loss.numel()) + " elements"
                              : "a tensor without a gradient function";
  throw Error({.place = model_->name() + "::training_step",
               .found = found + " was returned",
               .wanted = "the loss: one number that depends on the parameters",
               .remedy = "return its mean()"});
}

}  // namespace kindling
