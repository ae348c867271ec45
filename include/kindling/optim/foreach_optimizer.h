#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/optim/optimizer.h"
#include "kindling/optim/step_counters.h"

namespace kindling {

// Base of rules that use LibTorch's foreach operators. It counts steps on the device (`step`, a float32
// scalar) and supports maximize, both kinds of weight decay, and learning rates as tensors. Override
// update_part() to define a rule.
class KINDLING_API ForeachOptimizer : public Optimizer {
 public:
  bool takes_tensors() const override { return true; }

 protected:
  enum class WeightDecay {
    coupled,    // adds weight_decay·p to the gradients
    decoupled,  // p ← p·(1 − lr·weight_decay) before the rule
    by_rule,
  };
  // Properties that many rules share.
  struct UpdateStyle {
    bool maximize = false;  // maximises: the gradients are negated
    WeightDecay weight_decay = WeightDecay::coupled;
    bool counts_steps = true;
    bool takes_sparse = false;
  };
  using Manner [[deprecated("use UpdateStyle")]] = UpdateStyle;
  ForeachOptimizer(ParameterGroups parameters, double lr, double weight_decay, UpdateStyle style);

  // The part of an update for parameters that have always been updated together.
  struct Part {
    std::vector<std::size_t> places;                // indices in parameters()
    std::vector<at::Tensor> parameters, gradients;  // the latter as the rule uses them; do not change
    at::Tensor step;  // the number of this step, a float64 scalar; see UpdateStyle
    LearningRate lr;
    double weight_decay;

    // Returns the tensors of a state list that belong to these parameters.
    std::vector<at::Tensor> of(const std::vector<at::Tensor>& state) const;
    // Returns a scalar in the parameters' type, in which foreach operators are fast.
    at::Tensor typed(const at::Tensor& scalar) const;
    // Returns lr·factor as a float64 scalar on the device; undefined if it is the number lr.number.
    at::Tensor rate(const at::Tensor& factor) const;
    // p ← p − lr·factor·updates; the factor is a float64 scalar on the device, or 1. Changes `updates`.
    void descend(at::TensorList updates, const at::Tensor& factor = {}) const;
    // p ← p·(1 − lr·weight_decay).
    void decay() const;
  };
  virtual void update_part(const Part& part) = 0;

  // Adds state that depends on the steps only and is shared like them: scalars that start with `value`.
  std::vector<at::Tensor>& add_scalar_state(std::string name, double value);
  // Adds state of the parameters' shapes that starts with zeros.
  std::vector<at::Tensor>& add_zeros(std::string name);

 private:
  bool heeds_options() const override { return false; }
  void update(const Update& update) final;
  void state_loaded() override;
  Part part_of(const Update& update, const std::vector<std::size_t>& indices) const;

  UpdateStyle style_;
  std::vector<std::vector<at::Tensor>*> scalars_;
  std::optional<StepCounters> counters_;
};

}  // namespace kindling
