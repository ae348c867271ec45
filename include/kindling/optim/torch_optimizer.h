#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// Wraps an optimizer of LibTorch (torch::optim::Adam, SGD, LBFGS, …) or a class derived from
// torch::optim::Optimizer, to train with exactly its rule. Learning rates, schedules, parameter groups and
// checkpoints work as with Kindling's own rules; the state is saved by the parameters' names. Steps are not
// captured, LBFGS does not support sharded batches, and on a GPU a step with non-finite gradients cannot be
// skipped.
//
//   kindling::TorchOptimizer::make<torch::optim::AdamW>(std::move(parameters),
//                                                       torch::optim::AdamWOptions(1e-3));
class KINDLING_API TorchOptimizer : public Optimizer {
 public:
  // Creates a `Rule` with these options. A group's own lr and weight_decay take precedence over them. Throws
  // ConfigError for a weight decay that the rule does not have, c10::Error for options that it rejects.
  template <class Rule, class Options>
  static std::unique_ptr<TorchOptimizer> make(ParameterGroups parameters, const Options& options) {
    std::vector<ParameterGroup> groups = parameters.groups();
    auto wrapped = std::make_unique<Rule>(plain_groups(groups), options);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      auto& own = static_cast<Options&>(wrapped->param_groups()[i].options());
      if constexpr (requires { own.weight_decay(0.0); }) {
        own.weight_decay(groups[i].weight_decay.value_or(own.weight_decay()));
        groups[i].weight_decay = own.weight_decay();
      } else if (groups[i].weight_decay) {
        refuse_weight_decay();
      }
      if (groups[i].lr) own.set_lr(*groups[i].lr);
    }
    return std::unique_ptr<TorchOptimizer>(new TorchOptimizer(std::move(wrapped), std::move(groups)));
  }

  // Takes over an optimizer with its parameter groups. A class that is not LibTorch's must write save() and
  // load() as LibTorch's do, and serialize() of its options and its parameters' state.
  explicit TorchOptimizer(std::unique_ptr<torch::optim::Optimizer> wrapped);

  // The optimizer itself. Set learning rates with set_lr(), which overwrites them before each step.
  torch::optim::Optimizer& wrapped() noexcept { return *wrapped_; }

  at::Tensor step_with(const Closure& closure) override;
  bool needs_closure() const override;  // true for LBFGS
  // `NAME.exp_avg` and so on: the tensors that the rule keeps, in host memory; its numbers are in the
  // metadata.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  bool saves_all_state() const override { return true; }
  bool can_skip() const override { return false; }
  bool supports_tensor_lr() const override { return false; }

 protected:
  void update(const Update& update) override;
  bool handles_step_options() const override { return false; }

 private:
  TorchOptimizer(std::unique_ptr<torch::optim::Optimizer> wrapped, std::vector<ParameterGroup> groups);
  static std::vector<torch::optim::OptimizerParamGroup> plain_groups(
      const std::vector<ParameterGroup>& groups);
  [[noreturn]] static void refuse_weight_decay();
  void apply_rates();
  StateDict wrapped_state() const;
  void load_wrapped(const StateDict& state);

  std::unique_ptr<torch::optim::Optimizer> wrapped_;
};

}  // namespace kindling
