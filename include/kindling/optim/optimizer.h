#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/torch_optimizer.h"
#include "kindling/optim/parameter_group.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// What a guard has found out about the gradients, still on their device.
struct StepOptions {
  at::Tensor grad_scale{};  // float32 scalar that the gradients are divided by; undefined: 1
  at::Tensor
      found_inf{};  // float32 scalar, 1: leave parameters, state and counters as they are; undefined: 0
  bool found_inf_stays = false;  // once it is 1 it is so in every later step: none is made any more
};

// Updates parameters from their gradients. Parameters without a gradient are left alone, as in Python. Derive
// from it and write update() for an own rule. Neither step() nor a derived rule may read a tensor on the
// host.
class KINDLING_API Optimizer {
 public:
  // Parameters are float tensors on one device; throws ConfigError when there are none, when one is given
  // twice, and for names that are not as many as the parameters. `lr` and `weight_decay` are for groups
  // without their own.
  Optimizer(ParameterGroups groups, double lr, double weight_decay = 0);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update; call it after backward().
  void step(const StepOptions& options = {});
  // Drops the gradients (they become undefined tensors).
  void zero_grad();

  // The gradients of this step, of the parameters that have one. They may be changed in place before step().
  std::span<const at::Tensor> gradients();

  // With the learning rate and the weight decay that they were made with.
  const std::vector<ParameterGroup>& groups() const noexcept { return groups_; }
  const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }  // group by group
  const std::vector<std::string>& names() const noexcept { return names_; }           // of the parameters

  // The learning rate of the next step: a number, or a scalar on the parameters' device, which may change its
  // value there. Without `group`, of all groups; lr() is the number of the first group.
  double lr(std::size_t group = 0) const { return rates_.at(group).number; }
  void set_lr(double lr);
  void set_lr(std::size_t group, double lr) { rates_.at(group) = {lr, {}}; }
  void set_lr(std::size_t group, at::Tensor lr) { rates_.at(group).tensor = std::move(lr); }

  // Names for parameters that were given without, by those of the same tensors in the model.
  void take_names(const torch::nn::Module& model);

  // The state by names, `net.1.weight.exp_avg`: the optimizer's own tensors, and the learning rates of the
  // groups as numbers. Loading copies the values to where the parameters are; throws CheckpointError that
  // lists what does not fit (then nothing has been changed). A group that was made with another learning rate
  // than the saved one keeps its own.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

  // The rule's options under Python's names, for its files (python_optimizer.h); empty: they go to none.
  virtual TorchOptions python_options() const { return {}; }

  // Whether update() heeds its options and a tensor as learning rate; otherwise step() refuses them
  // (ConfigError).
  virtual bool takes_tensors() const { return false; }

 protected:
  // A number, or a tensor on the parameters' device.
  struct LearningRate {
    double number;
    at::Tensor tensor{};  // counts instead where it is defined
  };
  // The part of a step that concerns one group; of the parameters, those that have a gradient.
  struct Update {
    std::span<const std::size_t> active;  // their places in parameters()
    at::TensorList parameters, gradients;
    LearningRate lr;
    double weight_decay;
    StepOptions options;
  };
  // Runs without autograd.
  virtual void update(const Update& update) = 0;

  // State that is saved and loaded under this name: one tensor per parameter, undefined until the rule makes
  // it. The list stays where it is.
  std::vector<at::Tensor>& add_state(std::string name);
  // After load_state_dict().
  virtual void state_loaded() {}

  // Those of `all`, one per parameter, that an update concerns; `chosen` holds them unless they stand side by
  // side.
  static at::TensorList active_of(const std::vector<at::Tensor>& all, const Update& update,
                                  std::vector<at::Tensor>& chosen);

 private:
  struct State {
    std::string name;
    std::vector<at::Tensor> tensors;
  };

  std::vector<ParameterGroup> groups_;
  std::vector<LearningRate> rates_;  // of the groups
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::deque<State> states_;
  std::vector<at::Tensor> gradients_, chosen_;
  std::vector<std::size_t> active_;
};

template <class T>
concept ReadyMadeOptimizer =
    std::derived_from<T, Optimizer> || std::derived_from<typename T::element_type, Optimizer>;

template <class F>
concept MakesNoOptimizer = std::invocable<F&, ParameterGroups> &&
    !std::convertible_to<std::invoke_result_t<F&, ParameterGroups>, std::unique_ptr<Optimizer>>;

// Makes the optimizer of a model once its parameters exist: any function of this kind. A lambda that returns
// now one class and now another says `-> std::unique_ptr<Optimizer>`.
class OptimizerFactory : public std::function<std::unique_ptr<Optimizer>(ParameterGroups parameters)> {
 public:
  using function::function;
  OptimizerFactory() = default;
  OptimizerFactory(function make) : function(std::move(make)) {}

  // For a message of one line.
  template <class T>
  requires ReadyMadeOptimizer<T> || MakesNoOptimizer<T> OptimizerFactory(const T&) {
    static_assert(sizeof(T) == 0,
                  "an optimizer is given as a function that makes it: [](kindling::ParameterGroups p) "
                  "{ return std::make_unique<kindling::Sgd>(std::move(p), kindling::SgdOptions{}); }");
  }
};

}  // namespace kindling
