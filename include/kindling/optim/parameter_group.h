#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"

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

// Parameters by their names, `net.0.*` (name_pattern.h), with numbers of their own.
struct GroupPattern {
  std::string match{};
  std::optional<double> lr{};            // absent: the optimizer's
  std::optional<double> weight_decay{};  // absent: the optimizer's

  static constexpr auto fields = kindling::fields(
      kindling::field("match", &GroupPattern::match,
                      {.doc = "pattern of parameter names, such as net.0.* or *.bias"}),
      kindling::field("lr", &GroupPattern::lr, {.doc = "learning rate; absent: the optimizer's", .min = 0}),
      kindling::field("weight_decay", &GroupPattern::weight_decay,
                      {.doc = "weight decay; absent: the optimizer's", .min = 0}));
};

// A group for each pattern, behind what no pattern fits; of several that fit, the first counts. `all` is a
// model, or parameters with names. Throws ConfigError for a pattern that fits no parameter, or only such that
// patterns before it have taken.
KINDLING_API ParameterGroups by_name(const ParameterGroups& all, const std::vector<GroupPattern>& patterns);

}  // namespace kindling
