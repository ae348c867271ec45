#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Parameters that are updated by the same rule.
struct ParameterGroup {
  std::vector<at::Tensor> parameters{};
  std::vector<std::string> names{};      // as the model registers them; empty: the trainer fills them in
  std::optional<double> lr{};            // learning rate; absent: the optimizer's
  std::optional<double> weight_decay{};  // absent: the optimizer's
};

// What an optimizer updates: all parameters of a model, a list of tensors, or groups of their own.
class KINDLING_API ParameterGroups {
 public:
  ParameterGroups() = default;
  // Every registered parameter once, under its first name, frozen ones included: a parameter without a
  // gradient is skipped in a step, and one that is unfrozen later is trained from then on.
  ParameterGroups(const torch::nn::Module& model);
  ParameterGroups(std::vector<at::Tensor> parameters);
  ParameterGroups(std::initializer_list<at::Tensor> parameters);
  ParameterGroups(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  ParameterGroups(std::initializer_list<ParameterGroup> groups) : groups_(groups) {}

  // All parameters, group by group.
  operator std::vector<at::Tensor>() const;

  const std::vector<ParameterGroup>& groups() const noexcept { return groups_; }

 private:
  std::vector<ParameterGroup> groups_;
};

}  // namespace kindling
