#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/optim/optimizer.h"
#include "kindling/optim/step_counters.h"

namespace kindling {

// What rules have in common that are made of LibTorch's foreach operators: they count steps on the device
// (`step`, a float32 scalar), and take maximize, both kinds of weight decay, and learning rates as tensors.
// Write update_part() for an own one.
class KINDLING_API ForeachOptimizer : public Optimizer {
 public:
  bool takes_tensors() const override { return true; }

 protected:
  enum class WeightDecay {
    coupled,    // the gradients get weight_decay·p added
    decoupled,  // p ← p·(1 − lr·weight_decay) before the rule
    by_rule,
  };
  // What is alike in many rules.
  struct UpdateStyle {
    bool maximize = false;  // climbs: the gradients count negated
    WeightDecay weight_decay = WeightDecay::coupled;
    bool counts_steps = true;
    bool takes_sparse = false;
  };
  using Manner [[deprecated("use UpdateStyle")]] = UpdateStyle;
  ForeachOptimizer(ParameterGroups parameters, double lr, double weight_decay, UpdateStyle style);

  // The part of an update that concerns parameters which have always been updated together.
  struct Part {
    std::vector<std::size_t> places;                // in parameters()
    std::vector<at::Tensor> parameters, gradients;  // the latter as the rule is to see them, not to change
    at::Tensor step;                                // the number of this one, a float64 scalar; see UpdateStyle
    LearningRate lr;
    double weight_decay;

    // What a list of state holds for these parameters.
    std::vector<at::Tensor> of(const std::vector<at::Tensor>& state) const;
    // A scalar in the parameters' type, in which foreach operators are fast.
    at::Tensor typed(const at::Tensor& scalar) const;
    // lr·factor as a float64 scalar on the device; undefined where it is the number lr.number.
    at::Tensor rate(const at::Tensor& factor) const;
    // p ← p − lr·factor·updates, the factor a float64 scalar on the device, or 1. Changes `updates`.
    void descend(at::TensorList updates, const at::Tensor& factor = {}) const;
    // p ← p·(1 − lr·weight_decay).
    void decay() const;
  };
  virtual void update_part(const Part& part) = 0;

  // State that depends on the steps alone and is shared as they are: scalars that start with `value`.
  std::vector<at::Tensor>& add_scalar_state(std::string name, double value);
  // State of the parameters' shapes that starts with zeros.
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
