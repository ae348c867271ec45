#pragma once

#include <ATen/core/Tensor.h>

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

// Updates parameters from their gradients. Parameters without a gradient are left alone, as in Python. Derive
// from it and write update() for an own rule. No rule but Lbfgs may read a tensor on the host.
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
  using Closure = std::function<at::Tensor()>;  // drops the gradients, calls backward(), gives the loss
  // One update of a rule that evaluates the loss anew as often as it needs; gives the first loss. Of other
  // rules it is the closure and step().
  virtual at::Tensor step_with(const Closure& closure);
  // Whether step() is not enough (Lbfgs).
  virtual bool needs_closure() const { return false; }
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

  // The rule's momentum, which a schedule may change between two steps: SGD's momentum, the first of Adam's
  // betas. The last two throw ConfigError where there is none, and for values outside [0, 1).
  bool has_momentum() const noexcept { return momentum_.has_value(); }
  double momentum() const;
  void set_momentum(double momentum);

  // Names for parameters that were given without, by those of the same tensors in the model.
  void take_names(const torch::nn::Module& model);

  // The state by names, `net.1.weight.exp_avg`: the optimizer's own tensors, and the learning rates of the
  // groups and the momentum as numbers. Loading copies the values to where the parameters are; throws
  // CheckpointError that lists what does not fit (then nothing has been changed). A group that was made with
  // another learning rate than the saved one keeps its own, and so it is with the momentum.
  virtual StateDict state_dict() const;
  virtual void load_state_dict(const StateDict& state);
  // Whether state_dict() holds everything that a step leaves behind for the next one. By default, whether the
  // rule has called add_state(): of one that has not, a checkpoint cannot tell whether it keeps state
  // elsewhere, and warns. A rule that keeps none overrides it and returns true.
  virtual bool saves_all_state() const { return !states_.empty(); }

  // The rule's options under Python's names, for its files (python_optimizer.h); empty: they go to none.
  virtual TorchOptions python_options() const { return {}; }

  // Whether step() can leave out a step by `found_inf`: not where state does not tell how it starts.
  virtual bool can_skip() const;
  // Whether update() accepts a tensor as learning rate; otherwise step() refuses it (ConfigError).
  virtual bool supports_tensor_lr() const { return takes_tensors(); }
  virtual bool takes_tensors() const { return false; }  // deprecated: override supports_tensor_lr()
  // Whether each parameter's update depends only on its own gradient and state: then ranks may shard the
  // state (shard_optimizer_state). True for all rules here but Lbfgs, not for classes derived from them.
  virtual bool is_per_parameter() const { return false; }

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
  // Whether update() handles update.options itself, as fused operators do. Otherwise it never sees them:
  // step() divides the gradients, keeps parameters and state as they were, and puts them back where found_inf
  // is 1, without a host wait. What a rule keeps elsewhere than in its state (add_state) is not put back.
  virtual bool handles_step_options() const { return heeds_options(); }
  virtual bool heeds_options() const { return supports_tensor_lr(); }  // deprecated, as above

  // For the constructor of a rule that has a momentum: update() reads momentum().
  void add_momentum(double momentum) { initial_momentum_ = momentum_ = momentum; }
  // State that is saved and loaded under this name: one tensor per parameter, undefined until a parameter
  // meets its first gradient. `start` then makes it, of the parameter's shape or a scalar, or leaves it
  // undefined for now; without it the rule does. The list stays where it is.
  using Start = std::function<at::Tensor(const at::Tensor& parameter)>;
  std::vector<at::Tensor>& add_state(std::string name, Start start = nullptr);
  // Whether state is neither scalars nor of the parameters' shapes.
  virtual bool has_own_shapes() const { return false; }
  // After load_state_dict().
  virtual void state_loaded() {}

  // Those of `all`, one per parameter, that an update concerns; `chosen` holds those that lie apart.
  static at::TensorList active_of(const std::vector<at::Tensor>& all, const Update& update,
                                  std::vector<at::Tensor>& chosen);
  // Throws ConfigError that names the parameter whose gradient is sparse.
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
  void update_groups(const StepOptions& options);
  std::vector<at::Tensor*> touched();
  std::string misfits(const StateDict& saved) const;

  std::vector<ParameterGroup> groups_;
  std::vector<LearningRate> rates_;  // of the groups
  std::optional<double> momentum_, initial_momentum_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::deque<State> states_;
  std::vector<at::Tensor> gradients_, chosen_;
  std::vector<std::size_t> active_;
};

}  // namespace kindling
