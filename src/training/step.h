#pragma once

#include <memory>
#include <vector>

#include "kindling/metrics/device_log.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// What an optimizer updates, each once.
std::vector<at::Tensor> trainable_parameters(const Module& model);

// One optimizer step of one model: forward, backward, clip, schedule, update, log. The one place that does.
class Step {
 public:
  // `total_steps` of the run, 0 when unknown; all references outlive the step.
  Step(std::shared_ptr<Module> model, const TrainerOptions& options, DeviceLog& log);

  // Reads no tensor on the host. Throws Error for a loss that is no scalar. A watched step warns, once, when
  // the model's training_step makes the host wait.
  void run(const Batch& batch, bool is_watched = false);

  // Where the schedule is, counted in its interval; set before run().
  void set_schedule_point(std::int64_t step, std::int64_t total_steps);
  // The learning rate of a step, by the same pure function that run() uses.
  double lr_at(std::int64_t step) const;
  double lr() const noexcept { return lr_; }

  Module& model() noexcept { return *model_; }

 private:
  void make_optimizer();
  at::Tensor watched_training_step(const Batch& batch);
  void require_scalar(const at::Tensor& loss) const;

  std::shared_ptr<Module> model_;
  const TrainerOptions& options_;
  DeviceLog& log_;
  std::unique_ptr<Optimizer>
      optimizer_;  // made after the first forward pass, when lazy layers have their parameters
  double base_lr_ = 0, lr_ = 0;
  std::int64_t schedule_step_ = 0, schedule_total_ = 0;
  bool warned_of_wait_ = false;
};

}  // namespace kindling
