// Saves and loads the state of an optimizer by names.
#include <ATen/ops/view_as_complex.h>

#include <map>
#include <optional>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/move.h"
#include "optim/laid_as.h"
#include "tensors/real_numbers.h"
#include "tensors/saved_number.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

std::string lr_key(std::size_t group) { return "lr." + std::to_string(group); }

// Returns the number saved under `key`, or nothing if the saved optimizer was created with another one.
std::optional<double> saved_number(const StateDict& saved, const std::string& key, double made_with) {
  const auto initial = saved.metadata.find("initial_" + key);
  if (initial == saved.metadata.end() || initial->second != number_text(made_with)) return std::nullopt;
  return find_number<double>(saved.metadata, key);
}

void save_number(StateDict& saved, const std::string& key, double made_with, double number) {
  saved.metadata["initial_" + key] = number_text(made_with);
  saved.metadata[key] = number_text(number);
}

at::Tensor state_for(const at::Tensor& parameter, const at::Tensor& values) {
  return laid_as(as_real_pairs(parameter), as_real_pairs(copy_to(values, parameter.device())));
}

// Returns the shape that a rule sees.
std::vector<std::int64_t> shape_in_pairs(const at::Tensor& parameter) {
  std::vector<std::int64_t> sizes = parameter.sizes().vec();
  if (parameter.is_complex()) sizes.push_back(2);
  return sizes;
}

bool has_shape_of(const at::Tensor& values, const at::Tensor& parameter) {
  if (values.is_complex()) return parameter.is_complex() && values.sizes() == parameter.sizes();
  return values.dim() == 0 || values.sizes() == shape_in_pairs(parameter);
}

// State of a complex parameter is saved as complex numbers, as in Python.
at::Tensor as_saved(const at::Tensor& parameter, const at::Tensor& values) {
  if (!parameter.is_complex() || !values.is_floating_point() || values.dim() == 0 ||
      !has_shape_of(values, parameter))
    return values;
  return at::view_as_complex(values.stride(-1) == 1 ? values : values.contiguous());
}

}  // namespace

StateDict Optimizer::state_dict() const {
  StateDict saved;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const State& state : states_)
      if (state.tensors[i].defined())
        saved.tensors.emplace_back(
            names_[i] + "." + state.name,
            has_own_shapes() ? state.tensors[i] : as_saved(parameters_[i], state.tensors[i]));
  for (std::size_t group = 0; group < groups_.size(); ++group)
    save_number(saved, lr_key(group), *groups_[group].lr, rates_[group].number);
  if (momentum_) save_number(saved, "momentum", *initial_momentum_, *momentum_);
  return saved;
}

// Lists the entries of a saved state that belong to no parameter or state here, have another shape, or are
// missing; empty if everything matches.
std::string Optimizer::misfits(const StateDict& saved) const {
  std::string list;
  const auto add = [&](const std::string& name, const std::string& what) {
    list += (list.empty() ? "'" : ", '") + name + what;
  };
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const State& state : states_) places[names_[i] + "." + state.name] = i;
  std::vector<bool> has_some(parameters_.size());
  for (const auto& [name, values] : saved.tensors) {
    const auto place = places.find(name);
    if (place == places.end())
      add(name, "' is not part of its state");
    else if (!has_own_shapes() && !has_shape_of(values, parameters_[place->second]))
      add(name, "' has " + std::string(values.is_complex() ? "complex numbers and " : "") + "the shape " +
                    shape_text(values));
    else
      has_some[place->second] = true;
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const State& state : states_) {
      const std::string name = names_[i] + "." + state.name;
      if (has_some[i] && state.start && saved.find(name) == nullptr &&
          state.start(parameters_[i].detach()).defined())
        add(name, "' is missing");
    }
  return list;
}

void Optimizer::load_state_dict(const StateDict& saved) {
  if (const std::string list = misfits(saved); !list.empty())
    throw CheckpointError({.place = "optimizer",
                           .found = "the state does not fit: " + list,
                           .wanted = "the state of the same optimizer of the same model"});
  // Numbers are read before anything changes.
  std::vector<std::optional<double>> rates;
  for (std::size_t group = 0; group < groups_.size(); ++group)
    rates.push_back(saved_number(saved, lr_key(group), *groups_[group].lr));
  const auto momentum =
      momentum_ ? saved_number(saved, "momentum", *initial_momentum_) : std::optional<double>();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (State& state : states_) {
      const at::Tensor* values = saved.find(names_[i] + "." + state.name);
      state.tensors[i] = values ? state_for(parameters_[i], values->detach()) : at::Tensor();
    }
  for (std::size_t group = 0; group < groups_.size(); ++group)
    rates_[group].number = rates[group].value_or(rates_[group].number);
  if (momentum) momentum_ = momentum;
  state_loaded();
}

}  // namespace kindling
