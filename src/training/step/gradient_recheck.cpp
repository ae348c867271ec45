#include "training/step/gradient_recheck.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ne.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "nn/carried_states.h"
#include "tensors/real_numbers.h"
#include "tensors/run_difference.h"
#include "tensors/tensor_snapshot.h"
#include "training/step/gradients_apart.h"

namespace kindling {
namespace {

// Parameters of the model that no optimizer updates, so that nothing clears their gradients.
std::vector<at::Tensor> parameters_without_update(TrainState& state) {
  const std::vector<at::Tensor>& updated = state.optimizer->parameters();
  std::vector<at::Tensor> others;
  for (const at::Tensor& parameter : state.model->parameters()) {
    const auto is_it = [&](const at::Tensor& known) { return known.is_same(parameter); };
    if (std::ranges::none_of(updated, is_it)) others.push_back(parameter);
  }
  return others;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return (tensor.is_sparse() ? tensor.to_dense() : tensor.detach()).clone();
}

// Returns which numbers of two tensors of one type and shape differ in their bits; of NaN, which has many,
// none does.
at::Tensor differences(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor differ = at::ne(bits_of(one), bits_of(other));
  if (!one.is_floating_point() && !one.is_complex()) return differ;
  return differ.logical_and(
      at::isnan(as_real_pairs(one)).logical_and(at::isnan(as_real_pairs(other))).logical_not());
}

bool is_same(const at::Tensor& one, const at::Tensor& other) {
  if (one.defined() != other.defined()) return false;
  if (!one.defined() || one.numel() == 0) return true;
  return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
         !at::any(differences(one, other)).item<bool>();
}

constexpr const char* kGradientOf = "the gradient of ";

// "the gradient of net.1.weight: 1 of 12 numbers differ, first at position 5: 0.25 and 0.5"
std::string difference_text(const std::string& name, const at::Tensor& one, const at::Tensor& other) {
  if (one.defined() != other.defined())
    return name + ": only the " + (one.defined() ? "first" : "second") + " pass has computed it";
  const at::Tensor first = as_real_pairs(one).flatten(), second = as_real_pairs(other).flatten();
  const at::Tensor places = differences(first, second).nonzero().flatten();
  const auto at = places[0].item<std::int64_t>();
  const auto number = [&](const at::Tensor& tensor) { return number_text(tensor[at].item<double>()); };
  return name + ": " + std::to_string(places.size(0)) + " of " + std::to_string(first.numel()) +
         " numbers differ, first at position " + std::to_string(at) + ": " + number(first) + " and " +
         number(second);
}

}  // namespace

GradientRecheck::GradientRecheck(const StepContext& context) : context_(context) {
  if (context.device().is_cpu() || context.options.deterministic == "true") return;
  throw ConfigError({.place = "trainer.recheck_every_n_steps",
                     .found = std::to_string(context.options.recheck_every_n_steps) + " on " +
                              context.device().str() + ", whose operators may sum in a varying order",
                     .wanted = "deterministic = \"true\" with it"});
}

bool GradientRecheck::is_due() const {
  return (context_.state.progress.global_step + 1) % context_.options.recheck_every_n_steps == 0;
}

bool GradientRecheck::are_same(const Results& ones, const Results& others) {
  return std::ranges::equal(ones, others, [](const auto& one, const auto& other) {
    return one.first == other.first && is_same(one.second, other.second);
  });
}

GradientRecheck::Results GradientRecheck::results_of(const at::Tensor& loss) const {
  const at::NoGradGuard no_grad;
  Results results{{"the loss", copy_of(loss)}};
  for (const auto& item : context_.state.model->named_parameters())
    results.emplace_back(kGradientOf + item.key(), copy_of(item.value().grad()));
  for (const auto& item : context_.state.model->named_buffers())
    results.emplace_back("the buffer " + item.key(), copy_of(item.value()));
  return results;
}

at::Tensor GradientRecheck::run(const Pass& first, const Pass& again) const {
  TrainState& state = context_.state;
  const Device device = context_.device();
  const std::vector<at::Tensor> random_before = random_state(device), buffers = state.model->buffers();
  const CarriedStates hidden_before(*state.model);
  auto before = std::make_unique<const TensorSnapshot>(buffers);
  const std::vector<at::Tensor> others = parameters_without_update(state);
  std::vector<at::Tensor> all = state.optimizer->parameters();
  all.insert(all.end(), others.begin(), others.end());
  GradientsApart of_others(others);

  const at::Tensor loss = first();
  const Results results = results_of(loss);

  // The state after the first pass is the one that stays.
  const TensorSnapshot after(buffers);
  const RandomStateGuard random_after(device);
  const CarriedStates hidden_after(*state.model);
  const auto repeat = [&] {
    before->restore();
    set_random_state(device, random_before);
    hidden_before.put_back();
    const GradientsApart aside(all);
    const MutedLog muted(context_.calls, device);
    const at::Tensor repeated = again();
    return results_of(repeated);
  };
  const Results second = repeat();
  // With sync_batchnorm, a pass of this rank alone would wait for the others.
  const bool can_repeat = !context_.options.sync_batchnorm || context_.group() == nullptr;
  if (!are_same(results, second)) report(results, second, can_repeat ? repeat() : Results{});
  hidden_after.put_back();
  of_others.join();
  before.reset();  // its values are overwritten by those after the first pass
  return loss;
}

void GradientRecheck::report(const Results& first, const Results& second, const Results& third) const {
  const std::size_t num_tensors = std::min(first.size(), second.size());
  std::size_t origin = num_tensors, num_different = 0;
  for (std::size_t i = 0; i < num_tensors; ++i) {
    if (is_same(first[i].second, second[i].second)) continue;
    // Backward runs from the last layer to the first, so it starts at the last gradient that differs.
    if (num_different++ == 0 || (origin != 0 && first[i].first.starts_with(kGradientOf))) origin = i;
  }
  const std::string found =
      origin == num_tensors
          ? "the passes have other parameters or buffers"
          : difference_text(first[origin].first, first[origin].second, second[origin].second) +
                "; tensors that differ: " + std::to_string(num_different);
  const char* const verdict =
      third.empty()             ? "there is no third pass, because the ranks communicate within a step"
      : are_same(third, first)  ? "a third pass equals the first one, so the second one was wrong"
      : are_same(third, second) ? "a third pass equals the second one, so the first one was wrong"
                                : "a third pass differs from both";
  ProcessGroup* const group = context_.group();
  throw Error(
      {.place = "step " + std::to_string(context_.state.progress.global_step + 1) +
                (group != nullptr ? " on rank " + std::to_string(group->rank()) : "") + ", computed twice",
       .found = found + "; " + verdict,
       .wanted = "bit-identical results",
       .remedy = std::string("suspect the machine: run kindling doctor --stress 600 before you resume "
                             "from the last checkpoint. If every check fails, training_step() "
                             "depends on something other than parameters, buffers, hidden states and "
                             "LibTorch's random numbers") +
                 (context_.capture.is_captured() ? ", or is captured wrongly (step_graph)" : "")});
}

}  // namespace kindling
