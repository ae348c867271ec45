#include "tensors/state_fit.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <set>

#include "checkpoint/checkpoint_file.h"
#include "kindling/base/error.h"
#include "tensors/module_tree.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// The indices of the values by their names in the model.
using Places = std::map<std::string, std::size_t>;

Places places_in_model(const StateDict& values, const LoadOptions& options, const std::string& where) {
  Places places;
  for (std::size_t i = 0; i < values.tensors.size(); ++i) {
    std::string name = values.tensors[i].first;
    if (!name.starts_with(options.prefix)) continue;
    name.erase(0, options.prefix.size());
    const auto rule =
        std::ranges::find_if(options.map, [&](const auto& one) { return name.starts_with(one.first); });
    if (rule != options.map.end()) name.replace(0, rule->first.size(), rule->second);
    const auto [known, added] = places.try_emplace(name, i);
    if (!added)
      throw CheckpointError({.place = where,
                             .found = "'" + values.tensors[known->second].first + "' and '" +
                                      values.tensors[i].first + "' would both be loaded as '" + name + "'",
                             .remedy = "nothing was loaded; change the map"});
  }
  return places;
}

std::vector<std::string> clauses(const LoadReport& report) {
  std::vector<std::string> all;
  for (const auto& [name, shape, wanted] : report.misfits)
    all.push_back("'" + name + "' has the shape " + shape +
                  (wanted.empty() ? ", which its layer cannot take" : ", the model's is " + wanted));
  for (const std::string& name : report.missing) all.push_back("'" + name + "' is missing");
  for (const std::string& name : report.unexpected) all.push_back("'" + name + "' is not in the model");
  return all;
}

StateFit match(const StateDict& own, const StateDict& values, Places places, std::size_t num_required) {
  StateFit fit;
  for (const auto& [name, tensor] : own.tensors) {
    const auto place = places.extract(name);
    if (place.empty()) {
      fit.report.missing.push_back(name);
      continue;
    }
    const at::Tensor& value = values.tensors[place.mapped()].second;
    const bool loses_imaginary_part = tensor.defined() && value.is_complex() && !tensor.is_complex();
    if (loses_imaginary_part)
      fit.report.misfits.push_back({name, type_text(value), type_text(tensor)});
    else if (tensor.defined() && tensor.sizes() == value.sizes())
      fit.targets.push_back({name, tensor, place.mapped()});
    else
      fit.report.misfits.push_back(
          {name, shape_text(value), tensor.defined() ? shape_text(tensor) : std::string()});
  }
  for (const auto& [name, place] : places)
    if (place < num_required) fit.report.unexpected.push_back(name);
  return fit;
}

std::string remedy_for(const LoadReport& report, const StateDict& values) {
  const std::set<std::string> missing(report.missing.begin(), report.missing.end());
  const std::string prefix = saved_keys::kModel;
  const bool has_prefix = std::ranges::any_of(values.tensors, [&](const auto& tensor) {
    return tensor.first.starts_with(prefix) && missing.contains(tensor.first.substr(prefix.size()));
  });
  if (!has_prefix) return "nothing was loaded; check the model's options";
  return "nothing was loaded; the names have the prefix \"model.\": pass LoadOptions{.prefix = \"model.\"}, "
         "or call "
         "load_validated_weights() for a checkpoint of a Trainer";
}

// A lazy layer whose weight does not match keeps no shape, and so has no other tensors.
void leave_lazy(const std::string& weight, LazyLayer& layer, const StateDict& values, StateFit& fit) {
  const auto is_weight = [&](const StateFit::Target& target) { return target.name == weight; };
  if (!layer.is_materialized() || std::ranges::any_of(fit.targets, is_weight)) return;
  layer.dematerialize();
  const std::string prefix = weight.substr(0, weight.rfind('.') + 1);
  std::erase_if(fit.targets, [&](const StateFit::Target& target) {
    const bool is_in_layer = target.name.starts_with(prefix);
    if (is_in_layer)
      fit.report.misfits.push_back({target.name, shape_text(values.tensors[target.value].second), ""});
    return is_in_layer;
  });
}

// Returns the first clauses, each after a line break, and the number of the others.
std::string first_lines(const std::vector<std::string>& clauses) {
  constexpr std::size_t kMostLines = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(clauses.size(), kMostLines); ++i) text += "\n  " + clauses[i];
  if (clauses.size() > kMostLines) text += "\n  +" + std::to_string(clauses.size() - kMostLines) + " more";
  return text;
}

}  // namespace

std::vector<std::pair<std::string, LazyLayer*>> lazy_layers(torch::nn::Module& module) {
  std::vector<std::pair<std::string, LazyLayer*>> layers;
  for_each_module(module, [&](const std::string& name, torch::nn::Module& layer) {
    if (auto* lazy = dynamic_cast<LazyLayer*>(&layer)) layers.emplace_back(name, lazy);
  });
  return layers;
}

std::vector<std::pair<std::string, LazyLayer*>> layers_without_shape(torch::nn::Module& module) {
  auto layers = lazy_layers(module);
  std::erase_if(layers, [](const auto& item) { return item.second->is_materialized(); });
  for (auto& [name, layer] : layers) name = in_layer(name, "weight");
  return layers;
}

std::string LoadReport::text() const {
  std::string text = std::to_string(loaded.size()) + " tensors loaded";
  for (const std::string& clause : clauses(*this)) text += "\n  " + clause;
  return text;
}

StateDict renamed(const StateDict& state, const LoadOptions& options, const std::string& place) {
  std::vector<std::string> names(state.tensors.size());
  std::vector<bool> is_taken(state.tensors.size());
  for (const auto& [name, i] : places_in_model(state, options, place)) {
    names[i] = name;
    is_taken[i] = true;
  }
  StateDict result{.tensors = {}, .metadata = state.metadata};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (is_taken[i]) result.tensors.emplace_back(names[i], state.tensors[i].second);
  return result;
}

StateFit fit_state(torch::nn::Module& module, const StateDict& values, const LoadOptions& options,
                   const std::string& place, std::size_t num_required) {
  const Places places = places_in_model(values, options, place);
  const auto lazy_layers = layers_without_shape(module);
  for (const auto& [name, layer] : lazy_layers)
    if (const auto weight = places.find(name); weight != places.end())
      layer->materialize_like(values.tensors[weight->second].second);
  StateDict own = state_dict(module);
  for (const auto& [name, layer] : lazy_layers)
    if (!layer->is_materialized()) own.tensors.emplace_back(name, at::Tensor());
  StateFit fit = match(own, values, places, num_required);
  const std::vector<std::string> misfits = clauses(fit.report);
  if (options.strict && !misfits.empty()) {
    for (const auto& [name, layer] : lazy_layers) layer->dematerialize();
    throw CheckpointError({.place = place,
                           .found = "the values do not fit the model",
                           .wanted = "the names and shapes of the model",
                           .remedy = remedy_for(fit.report, values) + first_lines(misfits)});
  }
  for (const auto& [name, layer] : lazy_layers) leave_lazy(name, *layer, values, fit);
  for (const auto& target : fit.targets) fit.report.loaded.push_back(target.name);
  return fit;
}

}  // namespace kindling
