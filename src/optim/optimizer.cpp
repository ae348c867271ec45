#include "kindling/optim/optimizer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "optim/distinct_parameters.h"
#include "optim/exact_products.h"
#include "optim/foreach_copies.h"
#include "optim/laid_as.h"
#include "tensors/real_numbers.h"

namespace kindling {
namespace {

// CUDA's fused operators read a float there.
at::Tensor rate_for(const at::Tensor& parameter, const at::Tensor& rate) {
  return rate.defined() && parameter.is_cuda() ? rate.to(at::kFloat) : rate;
}

[[noreturn]] void refuse(std::string found, const char* wanted) {
  throw ConfigError({.place = "optimizer", .found = std::move(found), .wanted = wanted});
}

at::Tensor pairs_of_gradient(const at::Tensor& gradient) {
  if (!gradient.is_sparse()) return as_real_pairs(gradient);
  std::vector<std::int64_t> sizes = gradient.sizes().vec();
  sizes.push_back(2);
  const at::Tensor values = as_real_pairs(gradient._values());
  return at::_sparse_coo_tensor_unsafe(gradient._indices(), values, sizes,
                                       values.options().layout(at::kSparse), gradient.is_coalesced());
}

constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

// Copies of tensors before a step that may have to be reverted.
class KeptTensors {
 public:
  // Skips undefined ones. Several places may refer to the same tensor.
  explicit KeptTensors(const std::vector<at::Tensor*>& places);

  // If `found_inf`, a scalar on their device, is not 0, restores the values of the tensors at these places;
  // the places are those of the constructor in the same order, but may refer to other tensors now. No host
  // wait.
  void put_back(const std::vector<at::Tensor*>& places, const at::Tensor& found_inf) const;

 private:
  std::vector<at::Tensor> copies_;
  std::vector<std::size_t> copy_of_;  // of each place; kNothing if it was undefined
};

KeptTensors::KeptTensors(const std::vector<at::Tensor*>& places) {
  std::vector<at::Tensor> tensors;
  std::unordered_map<const at::TensorImpl*, std::size_t> known;
  for (const at::Tensor* place : places) {
    if (!place->defined()) {
      copy_of_.push_back(kNothing);
      continue;
    }
    const auto [found, is_new] = known.emplace(place->unsafeGetTensorImpl(), tensors.size());
    if (is_new) tensors.push_back(*place);
    copy_of_.push_back(found->second);
  }
  copies_ = foreach_copies(tensors);
}

void KeptTensors::put_back(const std::vector<at::Tensor*>& places, const at::Tensor& found_inf) const {
  const at::Tensor is_bad = found_inf.ne(0);
  std::unordered_set<const at::TensorImpl*> done;
  for (std::size_t i = 0; i < places.size(); ++i) {
    at::Tensor& now = *places[i];
    if (copy_of_[i] == kNothing || !done.insert(now.unsafeGetTensorImpl()).second) continue;
    at::where_out(now, is_bad, copies_[copy_of_[i]], now);
  }
}

}  // namespace

Optimizer::Optimizer(ParameterGroups groups, double lr, double weight_decay) : groups_(groups.groups()) {
  std::set<const at::TensorImpl*> known;
  for (ParameterGroup& group : groups_) {
    if (!group.names.empty() && group.names.size() != group.parameters.size())
      refuse("a group has more or fewer names than parameters", "one name per parameter, or none");
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      if (!known.insert(group.parameters[i].unsafeGetTensorImpl()).second)
        refuse("a parameter is given twice", "each parameter in one group, once");
      names_.push_back(group.names.empty() ? std::to_string(names_.size()) : group.names[i]);
      parameters_.push_back(group.parameters[i]);
    }
    if (!group.lr) group.lr = lr;
    if (!group.weight_decay) group.weight_decay = weight_decay;
    rates_.push_back({*group.lr});
    weight_decays_.push_back(*group.weight_decay);
  }
  if (parameters_.empty()) refuse("the model has no parameters to train", "at least one parameter");
  has_complex_ = std::ranges::any_of(parameters_, [](const at::Tensor& p) { return p.is_complex(); });
}

Optimizer::~Optimizer() = default;

void Optimizer::set_lr(double lr) {
  for (LearningRate& rate : rates_) rate = {lr, {}};
}

void Optimizer::set_weight_decay(std::size_t group, double weight_decay) {
  if (!std::isfinite(weight_decay) || weight_decay < 0)
    refuse("the weight decay is " + number_text(weight_decay), "a finite number, at least 0");
  weight_decays_.at(group) = weight_decay;
}

double Optimizer::momentum() const {
  if (!momentum_) refuse("this rule has no momentum", "a rule whose has_momentum() is true");
  return *momentum_;
}

void Optimizer::set_momentum(double momentum) {
  if (!momentum_) refuse("this rule has no momentum", "a rule whose has_momentum() is true");
  if (!(momentum >= 0 && momentum < 1))
    refuse("a momentum of " + number_text(momentum), "at least 0 and below 1");
  momentum_ = momentum;
}

std::span<const at::Tensor> Optimizer::gradients() {
  gradients_.clear();
  active_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    gradients_.push_back(gradient);
    active_.push_back(i);
  }
  return gradients_;
}

bool Optimizer::can_skip() const {
  return handles_step_options() ||
         std::ranges::all_of(states_, [](const State& state) { return state.start != nullptr; });
}

void Optimizer::step(const StepOptions& options) {
  gradients();
  if (gradients_.empty()) return;
  check(options);
  const at::NoGradGuard no_grad;
  if (masters_ != nullptr) start_masters();
  if (has_complex_) start_real_pairs();
  start_state();
  if (handles_step_options()) {
    lay_as_parameters();
    update_groups(options);
  } else {
    if (options.grad_scale.defined()) at::_foreach_div_(gradients_, options.grad_scale);
    if (options.found_inf.defined()) {
      const KeptTensors before(touched());
      update_groups({});
      before.put_back(touched(), options.found_inf);
    } else {
      update_groups({});
    }
  }
  gradients_.clear();
  chosen_.clear();
}

at::Tensor Optimizer::step_with(const Closure& closure) {
  at::Tensor loss = closure();
  step();
  return loss;
}

void Optimizer::check(const StepOptions& options) const {
  const bool has_tensor = std::ranges::any_of(rates_, [](auto& rate) { return rate.tensor.defined(); });
  if (has_tensor && !supports_tensor_lr())
    refuse("this rule does not support a tensor as learning rate",
           "a rule whose supports_tensor_lr() is true");
  if (options.found_inf.defined() && !can_skip())
    refuse("this rule cannot skip a step: the initial value of its state is unknown",
           "add_state() with a start, or a rule that handles found_inf itself");
}

// Creates the state of parameters with their first gradient.
void Optimizer::start_state() {
  for (State& state : states_) {
    if (!state.start) continue;
    for (const std::size_t i : active_)
      if (!state.tensors[i].defined())
        state.tensors[i] = state.start(replaces_parameters() ? updated_[i] : parameters_[i].detach());
  }
}

// The rule's own state starts from the masters, in their type, so they come first.
void Optimizer::use_master_weights() {
  if (!is_per_parameter())
    throw ConfigError({.place = "master_weights",
                       .found = "this optimizer does not support float32 copies of its weights",
                       .wanted = "a rule whose is_per_parameter() is true",
                       .remedy = "master_weights = false, or precision = \"bf16-mixed\""});
  if (masters_ != nullptr) return;
  const Start start = [](const at::Tensor& parameter) {
    return is_of_16_bits(parameter) ? parameter.to(at::kFloat) : at::Tensor();
  };
  masters_ =
      &states_.emplace_front(State{"master_weight", start, std::vector<at::Tensor>(parameters_.size())})
           .tensors;
  updated_.resize(parameters_.size());
  rounded_versions_.resize(parameters_.size());
  // State that has been loaded before belongs to the parameters; now it belongs to their masters.
  for (State& state : states_)
    for (std::size_t i = 0; i < state.tensors.size(); ++i)
      if (at::Tensor& tensor = state.tensors[i];
          tensor.defined() && is_of_16_bits(parameters_[i]) && is_of_16_bits(tensor))
        tensor = tensor.to(at::kFloat);
}

// A version that has changed may mean other values: those that are not the rounded master replace it.
void Optimizer::start_masters() {
  const Start& start = states_.front().start;
  for (std::size_t k = 0; k < active_.size(); ++k) {
    const std::size_t i = active_[k];
    const at::Tensor parameter = parameters_[i].detach();
    at::Tensor& master = (*masters_)[i];
    if (!master.defined())
      master = start(parameter);
    else if (parameter._version() != rounded_versions_[i])
      master.copy_(at::where(master.to(parameter.scalar_type()).eq(parameter), master, parameter));
    updated_[i] = master.defined() ? master : parameter;
    if (master.defined()) gradients_[k] = gradients_[k].to(at::kFloat);
  }
}

// Rules that are not linear are wrong on complex numbers, and LibTorch's fused operators refuse them.
void Optimizer::start_real_pairs() {
  updated_.resize(parameters_.size());
  for (std::size_t k = 0; k < active_.size(); ++k) {
    const std::size_t i = active_[k];
    if (parameters_[i].is_complex()) {
      updated_[i] = as_real_pairs(parameters_[i].detach());
      gradients_[k] = pairs_of_gradient(gradients_[k]);
    } else if (masters_ == nullptr) {
      updated_[i] = parameters_[i].detach();
    }
  }
}

void Optimizer::round_masters(std::span<const std::size_t> updated) {
  for (const std::size_t i : updated) {
    if (!(*masters_)[i].defined()) continue;
    parameters_[i].copy_((*masters_)[i]);
    rounded_versions_[i] = parameters_[i]._version();
  }
}

// Fused operators traverse memory in order, whatever the strides are.
void Optimizer::lay_as_parameters() {
  for (std::size_t k = 0; k < active_.size(); ++k) {
    const std::size_t i = active_[k];
    const at::Tensor& parameter = has_complex_ ? updated_[i] : parameters_[i];
    if (!parameter.is_non_overlapping_and_dense())
      refuse("the values of '" + names_[i] + "' overlap or have gaps in memory", "a dense tensor");
    gradients_[k] = laid_as(parameter, gradients_[k]);
    for (State& state : states_)
      if (state.tensors[i].defined()) state.tensors[i] = laid_as(parameter, state.tensors[i]);
    if (masters_ != nullptr && (*masters_)[i].defined()) updated_[i] = (*masters_)[i];
  }
}

// Returns the tensors that the current update may change.
std::vector<at::Tensor*> Optimizer::touched() {
  std::vector<at::Tensor*> tensors;
  for (const std::size_t i : active_) {
    tensors.push_back(&parameters_[i]);
    for (State& state : states_) tensors.push_back(&state.tensors[i]);
  }
  return tensors;
}

void Optimizer::update_groups(const StepOptions& options) {
  std::size_t first = 0, end_of_group = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    end_of_group += groups_[group].parameters.size();
    std::size_t end = first;
    while (end < active_.size() && active_[end] < end_of_group) ++end;
    if (end == first) continue;
    Update part{.active = std::span(active_).subspan(first, end - first),
                .parameters = {},
                .gradients = at::TensorList(gradients_).slice(first, end - first),
                .lr = {rates_[group].number, rate_for(parameters_[active_[first]], rates_[group].tensor)},
                .weight_decay = weight_decays_[group],
                .options = options};
    part.parameters = active_of(replaces_parameters() ? updated_ : parameters_, part, chosen_);
    update(part);
    if (masters_ != nullptr) round_masters(part.active);
    // Not every fused operator bumps the version: a graph that needs the former values must detect the write.
    for (const at::Tensor& parameter : part.parameters) parameter.unsafeGetTensorImpl()->bump_version();
    first = end;
  }
}

void Optimizer::require_dense(const Update& update) const {
  for (std::size_t i = 0; i < update.active.size(); ++i)
    if (update.gradients[i].is_sparse())
      throw ConfigError(
          {.place = "optimizer",
           .found = "the gradient of '" + names_[update.active[i]] + "' is sparse",
           .wanted = "a dense one",
           .remedy = "create the embedding without sparse(true), or train it with sgd or adagrad"});
}

void Optimizer::zero_grad() {
  gradients_.clear();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

at::TensorList Optimizer::active_of(const std::vector<at::Tensor>& all, const Update& update,
                                    std::vector<at::Tensor>& chosen) {
  const auto active = update.active;
  if (active.back() - active.front() + 1 == active.size())
    return at::TensorList(all).slice(active.front(), active.size());
  chosen.clear();
  for (const std::size_t i : active) chosen.push_back(all[i]);
  return chosen;
}

std::vector<at::Tensor>& Optimizer::add_state(std::string name, Start start) {
  State state{std::move(name), std::move(start), std::vector<at::Tensor>(parameters_.size())};
  return states_.emplace_back(std::move(state)).tensors;
}

void Optimizer::take_names(const torch::nn::Module& model) {
  std::map<const at::TensorImpl*, std::string> of;
  const ParameterGroups all(model);
  for (std::size_t i = 0; i < all.groups()[0].names.size(); ++i)
    of[all.groups()[0].parameters[i].unsafeGetTensorImpl()] = all.groups()[0].names[i];
  std::size_t i = 0;
  for (ParameterGroup& group : groups_) {
    const bool has_names = !group.names.empty();
    for (const at::Tensor& parameter : group.parameters) {
      const auto known = of.find(parameter.unsafeGetTensorImpl());
      if (!has_names && known != of.end()) names_[i] = known->second;
      if (!has_names) group.names.push_back(names_[i]);
      ++i;
    }
  }
}

}  // namespace kindling
