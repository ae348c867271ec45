#include "kindling/optim/parameter_group.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>

#include "kindling/base/error.h"
#include "kindling/base/name_pattern.h"
#include "optim/distinct_parameters.h"

namespace kindling {
namespace {

std::string place_of(const GroupPattern& pattern) { return "parameter group '" + pattern.match + "'"; }

void check_patterns(const ParameterGroups& all, const std::vector<GroupPattern>& patterns) {
  std::vector<std::string> names;
  for (const ParameterGroup& group : all.groups()) {
    if (group.names.size() != group.parameters.size())
      throw ConfigError({.place = "parameter groups",
                         .found = "the parameters have no names",
                         .wanted = "by_name(model, patterns), or names in the groups"});
    names.insert(names.end(), group.names.begin(), group.names.end());
  }
  for (const auto& [other, first] : all.other_names()) names.push_back(other);
  for (const GroupPattern& pattern : patterns) {
    validate(pattern, place_of(pattern));
    require_match(names, pattern.match, place_of(pattern));
  }
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> distinct_parameters(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::set<const at::TensorImpl*> known;
  for (const auto& item : model.named_parameters())
    if (item.value().defined() && known.insert(item.value().unsafeGetTensorImpl()).second)
      parameters.emplace_back(item.key(), item.value());
  return parameters;
}

ParameterGroups::ParameterGroups(const torch::nn::Module& model) : groups_(1) {
  std::map<const at::TensorImpl*, std::string> first_names;
  for (auto& [name, parameter] : distinct_parameters(model)) {
    groups_[0].names.push_back(name);
    groups_[0].parameters.push_back(parameter);
    first_names[parameter.unsafeGetTensorImpl()] = name;
  }
  for (const auto& item : model.named_parameters()) {
    if (!item.value().defined()) continue;
    const std::string& first = first_names.at(item.value().unsafeGetTensorImpl());
    if (first != item.key()) other_names_.emplace_back(item.key(), first);
  }
}

ParameterGroups::ParameterGroups(std::vector<at::Tensor> parameters) : groups_(1) {
  groups_[0].parameters = std::move(parameters);
}

ParameterGroups::ParameterGroups(std::initializer_list<at::Tensor> parameters)
    : ParameterGroups(std::vector<at::Tensor>(parameters)) {}

ParameterGroups::operator std::vector<at::Tensor>() const {
  std::vector<at::Tensor> all;
  for (const ParameterGroup& group : groups_)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

ParameterGroups by_name(const ParameterGroups& all, const std::vector<GroupPattern>& patterns) {
  check_patterns(all, patterns);
  std::vector<ParameterGroup> groups, chosen;
  for (const GroupPattern& pattern : patterns)
    chosen.push_back({.lr = pattern.lr, .weight_decay = pattern.weight_decay});
  for (const ParameterGroup& group : all.groups()) {
    ParameterGroup rest{.lr = group.lr, .weight_decay = group.weight_decay};
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const auto fits = [&](const GroupPattern& pattern) {
        return matches(group.names[i], pattern.match) ||
               std::ranges::any_of(all.other_names(), [&](const auto& other) {
                 return other.second == group.names[i] && matches(other.first, pattern.match);
               });
      };
      const auto pattern = std::ranges::find_if(patterns, fits);
      ParameterGroup& to =
          pattern == patterns.end() ? rest : chosen[static_cast<std::size_t>(pattern - patterns.begin())];
      to.parameters.push_back(group.parameters[i]);
      to.names.push_back(group.names[i]);
    }
    if (!rest.parameters.empty()) groups.push_back(std::move(rest));
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (chosen[i].parameters.empty())
      throw ConfigError({.place = place_of(patterns[i]),
                         .found = "earlier groups contain all parameters that it matches",
                         .wanted = "the more specific pattern first"});
    groups.push_back(std::move(chosen[i]));
  }
  return groups;
}

}  // namespace kindling
