#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Parameters that are updated with the same settings.
struct ParameterGroup {
  std::vector<at::Tensor> parameters{};
  std::vector<std::string> names{};      // as registered in the model; empty: the trainer sets them
  std::optional<double> lr{};            // learning rate; absent: the optimizer's
  std::optional<double> weight_decay{};  // absent: the optimizer's
};

// The parameters that an optimizer updates: all of a model, a list of tensors, or custom groups.
class KINDLING_API ParameterGroups {
 public:
  ParameterGroups() = default;
  // Every registered parameter once, under its first name, including frozen ones: a step skips parameters
  // without a gradient, and trains one from when it is unfrozen.
  ParameterGroups(const torch::nn::Module& model);
  ParameterGroups(std::vector<at::Tensor> parameters);
  ParameterGroups(std::initializer_list<at::Tensor> parameters);
  ParameterGroups(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  ParameterGroups(std::initializer_list<ParameterGroup> groups) : groups_(groups) {}

  // Returns all parameters, group by group.
  operator std::vector<at::Tensor>() const;

  const std::vector<ParameterGroup>& groups() const noexcept { return groups_; }
  // Of a model: the further names of parameters that it has registered several times, as tied weights are,
  // each with the parameter's first name. by_name() knows them, too.
  const std::vector<std::pair<std::string, std::string>>& other_names() const noexcept {
    return other_names_;
  }

 private:
  std::vector<ParameterGroup> groups_;
  std::vector<std::pair<std::string, std::string>> other_names_;
};

// Parameters selected by name, `net.0.*` (name_pattern.h), with their own settings.
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

// Returns a group for each pattern, after a group of the parameters that match no pattern; of several
// matching patterns, the first counts. `all` is a model, or parameters with names. Throws ConfigError for a
// pattern that matches no parameters, or only those that earlier patterns have matched.
KINDLING_API ParameterGroups by_name(const ParameterGroups& all, const std::vector<GroupPattern>& patterns);

}  // namespace kindling
