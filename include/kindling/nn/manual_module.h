#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"

namespace kindling {

// Optimizers of a model by the names that it gives them.
using NamedOptimizers = std::map<std::string, std::unique_ptr<Optimizer>, std::less<>>;

// A model with several optimizers, which runs their updates in its own training_step: generator and
// discriminator, actor and critic. What training_step returns is the number that is shown as train_loss;
// nobody else minimises it.
//
//   at::Tensor training_step(const Batch& batch) override {
//     const at::Tensor of_discriminator = …;
//     update("discriminator", of_discriminator);
//     const at::Tensor of_generator = …;
//     update("generator", of_generator);
//     return of_discriminator + of_generator;
//   }
//
// A step of the training (global_step, a schedule's step) is a batch, whatever number of updates it has run.
class KINDLING_API ManualModule : public Module {
 public:
  // Asked for once, at the first update: lazy layers must have their parameters by then (apply_init). Names
  // have no dots; they mark each optimizer's numbers in records and its state in checkpoints. Neither the
  // trainer's options nor a config can name another optimizer for such a model.
  virtual NamedOptimizers configure_named_optimizers() = 0;

 protected:
  // How an update goes about it.
  struct UpdateOptions {
    bool retain_graph = false;  // the loss shares a part of its graph with that of a later update
  };
  // Within training_step, as often as it is wanted: the gradients of the loss with respect to the parameters
  // of this optimizer alone, then what every step of a trainer does: the scaling of small gradients, the
  // guard against numbers that are not finite, clipping (of this optimizer's gradients together), schedule,
  // callbacks and update. Other parameters get no gradient. No host wait. Throws Error outside of a training
  // step, for a loss that is no scalar or that none of the parameters has a part in, and ConfigError for a
  // name that is not known.
  void update(std::string_view optimizer, const at::Tensor& loss, UpdateOptions options);
  void update(std::string_view optimizer, const at::Tensor& loss) { update(optimizer, loss, {}); }
};

}  // namespace kindling
