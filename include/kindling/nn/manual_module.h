#pragma once

#include <string_view>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"

namespace kindling {

// A model with several optimizers, whose training_step runs their updates itself: generator and
// discriminator, actor and critic. The value that training_step returns is only logged as train_loss; it is
// not minimised.
//
//   at::Tensor training_step(const Batch& batch) override {
//     const at::Tensor of_discriminator = …;
//     update("discriminator", of_discriminator);
//     const at::Tensor of_generator = …;
//     update("generator", of_generator);
//     return of_discriminator + of_generator;
//   }
//
// A step of the run (global_step, a schedule's step) is a batch, whatever the number of its updates.
class KINDLING_API ManualModule : public Module {
 public:
  // Returns the optimizers. Called once, at the first update: lazy layers must have their parameters by then
  // (apply_init). Names have no dots; they label each optimizer's values in records and its state in
  // checkpoints. Neither the trainer's options nor a config can choose another optimizer for such a model.
  NamedOptimizers configure_named_optimizers() override = 0;
  bool updates_manually() const final { return true; }

 protected:
  // Options of one update.
  struct UpdateOptions {
    bool retain_graph = false;  // the loss shares part of its graph with that of a later update
  };
  // Runs one update within training_step; may be called any number of times. Computes the gradients of the
  // loss with respect to the parameters of this optimizer only, then does what every step of a trainer does:
  // scaling of small gradients, the check for non-finite values, clipping (of this optimizer's gradients
  // together), schedule, callbacks and update. Other parameters get no gradient. The host does not wait.
  // Throws Error outside of a training step, and for a loss that is not a scalar or does not depend on any of
  // the parameters; throws ConfigError for an unknown name.
  void update(std::string_view optimizer, const at::Tensor& loss, UpdateOptions options);
  void update(std::string_view optimizer, const at::Tensor& loss) { update(optimizer, loss, {}); }
};

}  // namespace kindling
