#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/torch_optimizer.h"
#include "kindling/optim/parameter_group.h"
#include "kindling/optim/step_options.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Updates parameters from their gradients. Parameters without a gradient are not changed, as in Python.
// Derive from it and write update() to define a rule. No rule except Lbfgs may read a tensor on the host.
class KINDLING_API Optimizer {
 public:
  // Parameters are float or complex tensors on one device. Throws ConfigError if there are none, for a
  // repeated one, and if the numbers of names and parameters differ. `lr` and `weight_decay` are for groups
  // without their own.
  Optimizer(ParameterGroups groups, double lr, double weight_decay = 0);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes one update; call it after backward().
  void step(const StepOptions& options = {});
  using Closure = std::function<at::Tensor()>;  // clears the gradients, calls backward(), returns the loss
  // Makes one update of a rule that evaluates the loss as often as it needs to; returns the first loss. For
  // other rules it calls the closure and step().
  virtual at::Tensor step_with(const Closure& closure);
  // True if step() is not sufficient (Lbfgs).
  virtual bool needs_closure() const { return false; }
  // Clears the gradients (they become undefined tensors).
  void zero_grad();

  // Returns the existing gradients of this step. They may be changed in place before step().
  std::span<const at::Tensor> gradients();

  // With their initial learning rates and weight decays.
  const std::vector<ParameterGroup>& groups() const noexcept { return groups_; }
  const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }  // group by group
  const std::vector<std::string>& names() const noexcept { return names_; }           // of the parameters

  // The learning rate of the next step: a number, or a scalar on the parameters' device whose value may
  // change there. Without `group`, sets all groups; lr() returns the number of the first group.
  double lr(std::size_t group = 0) const { return rates_.at(group).number; }
  void set_lr(double lr);
  void set_lr(std::size_t group, double lr) { rates_.at(group) = {lr, {}}; }
  void set_lr(std::size_t group, at::Tensor lr) { rates_.at(group).tensor = std::move(lr); }

  // The weight decay of the next step, which a schedule may change between two steps. Rules without weight
  // decay (Lbfgs) do not read it. set_weight_decay() throws ConfigError for values below 0 or not finite.
  double weight_decay(std::size_t group = 0) const { return weight_decays_.at(group); }
  void set_weight_decay(std::size_t group, double weight_decay);

  // The rule's momentum, which a schedule may change between two steps: SGD's momentum, the first of Adam's
  // betas. The last two throw ConfigError if there is none, and for values outside [0, 1).
  bool has_momentum() const noexcept { return momentum_.has_value(); }
  double momentum() const;
  void set_momentum(double momentum);

  // Keeps a float32 copy of each bfloat16 or float16 parameter (its state `master_weight`), from its first
  // gradient on. The rule then updates these copies with float32 gradients and state, and each parameter is
  // its copy, rounded. Values that are written to a parameter between two steps replace those of the copy.
  // Call it before the first step and before a state is loaded. Throws ConfigError unless is_per_parameter().
  void use_master_weights();
  bool has_master_weights() const noexcept { return masters_ != nullptr; }

  // Sets missing names of parameters to those of the same tensors in the model.
  void take_names(const torch::nn::Module& model);

  // The state by names, `net.1.weight.exp_avg`: the optimizer's own tensors, and the learning rates of the
  // groups and the momentum as numbers. Loading copies the values to the parameters' device; throws
  // CheckpointError that lists every mismatch (then nothing has been changed). A group created with a
  // learning rate that differs from the saved one keeps its own, and so does the momentum.
  virtual StateDict state_dict() const;
  virtual void load_state_dict(const StateDict& state);
  // True if state_dict() contains everything that a step passes on to the next one. The default returns
  // whether the rule has called add_state(): otherwise a checkpoint cannot know whether the rule keeps state
  // in other places, and warns. A rule without state overrides it to return true.
  virtual bool saves_all_state() const { return !states_.empty(); }

  // Returns the rule's options under Python's names, for its files (python_optimizer.h), or nothing.
  virtual TorchOptions python_options() const { return {}; }

  // True if step() can skip a step by `found_inf`; false if the initial value of some state is unknown.
  virtual bool can_skip() const;
  // True if update() accepts a tensor as learning rate; otherwise step() rejects it (ConfigError).
  virtual bool supports_tensor_lr() const { return takes_tensors(); }
  virtual bool takes_tensors() const { return false; }  // deprecated: override supports_tensor_lr()
  // True if each parameter's update depends only on its own gradient and state: then ranks may shard the
  // state (shard_optimizer_state). True for all rules here except Lbfgs, not for derived classes.
  virtual bool is_per_parameter() const { return false; }

 protected:
  // A number, or a tensor on the parameters' device.
  struct LearningRate {
    double number;
    at::Tensor tensor{};  // takes precedence if defined
  };
  // The part of a step for one group, and its parameters with a gradient. Complex parameters and gradients
  // are pairs of real numbers here, [..., 2], as in PyTorch, and so is their state; parameters(), gradients()
  // and state_dict() have them as complex tensors.
  struct Update {
    std::span<const std::size_t> active;  // their indices in parameters()
    at::TensorList parameters, gradients;
    LearningRate lr;
    double weight_decay;
    StepOptions options;
  };
  // Runs without autograd.
  virtual void update(const Update& update) = 0;
  // True if update() handles update.options itself, as fused operators do. Otherwise it never sees them:
  // step() divides the gradients, saves parameters and state, and restores them if found_inf is 1, without a
  // host wait. Values that a rule keeps outside of its state (add_state) are not restored.
  virtual bool handles_step_options() const { return heeds_options(); }
  virtual bool heeds_options() const { return supports_tensor_lr(); }  // deprecated, as above

  // For the constructor of a rule with a momentum; update() then reads momentum().
  void add_momentum(double momentum) { initial_momentum_ = momentum_ = momentum; }
  // Adds state that is saved and loaded under this name: one tensor per parameter, undefined until the
  // parameter's first gradient. `start` then creates it, with the parameter's shape or as a scalar, or leaves
  // it undefined for now; without `start` the rule creates it. The reference to the list stays valid.
  using Start = std::function<at::Tensor(const at::Tensor& parameter)>;
  std::vector<at::Tensor>& add_state(std::string name, Start start = nullptr);
  // True if some state is neither a scalar nor of its parameter's shape.
  virtual bool has_own_shapes() const { return false; }
  // Called after load_state_dict().
  virtual void state_loaded() {}

  // Returns the elements of `all` (one per parameter) in an update; `chosen` stores scattered ones.
  static at::TensorList active_of(const std::vector<at::Tensor>& all, const Update& update,
                                  std::vector<at::Tensor>& chosen);
  // Throws ConfigError that names the parameter with a sparse gradient.
  void require_dense(const Update& update) const;

 private:
  friend class OptimizerAccess;  // the library's own, for captured updates
  struct State {
    std::string name;
    Start start;
    std::vector<at::Tensor> tensors;
  };
  void check(const StepOptions& options) const;
  void start_state();
  void lay_as_parameters();
  void start_masters();
  void start_real_pairs();
  bool replaces_parameters() const noexcept { return masters_ != nullptr || has_complex_; }
  void round_masters(std::span<const std::size_t> updated);
  void update_groups(const StepOptions& options);
  std::vector<at::Tensor*> touched();
  std::string misfits(const StateDict& saved) const;

  std::vector<ParameterGroup> groups_;
  std::vector<LearningRate> rates_;    // of the groups
  std::vector<double> weight_decays_;  // of the groups
  std::optional<double> momentum_, initial_momentum_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::deque<State> states_;
  std::vector<at::Tensor> gradients_, chosen_;
  std::vector<std::size_t> active_;
  std::vector<at::Tensor>* masters_ = nullptr;   // a list of the state; undefined: the parameter is updated
  bool has_complex_ = false;                     // some parameters are complex
  std::vector<at::Tensor> updated_;              // each parameter, its master, or its pairs of real numbers
  std::vector<std::uint32_t> rounded_versions_;  // of parameters whose values are those of their master
};

}  // namespace kindling
