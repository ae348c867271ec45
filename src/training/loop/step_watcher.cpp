#include "training/loop/step_watcher.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "device/random_state.h"
#include "kindling/base/number_text.h"
#include "nn/scoped_model_state.h"
#include "optim/distinct_parameters.h"
#include "tensors/real_numbers.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kIgnoredLoss = -std::numeric_limits<double>::infinity();

// The mean of sample losses and the loss of the batch add up the same numbers in another order.
constexpr double kTolerance = 1e-4, kTolerance16Bits = 2e-2;

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true) : tensor;
}

StateDict copy_of_values(const Module& model) {
  StateDict values = state_dict(model);
  for (auto& [name, tensor] : values.tensors) tensor = copy_of(tensor);
  return values;
}

Batch copy_of_batch(const Batch& batch) {
  Batch copy = batch;
  for (at::Tensor& tensor : copy.tensors()) tensor = copy_of(tensor);
  return copy;
}

bool are_close(double a, double b, bool has_16_bits) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(a) == std::isfinite(b);
  return std::abs(a - b) <=
         (has_16_bits ? kTolerance16Bits : kTolerance) * std::max(std::abs(a), std::abs(b));
}

double number_of(const at::Tensor& tensor) { return tensor.item().toDouble(); }

// The loss of each sample alone, as a batch of one: a mean over it. Its weight is that of loss(), else 1.
struct SampleLosses {
  at::Tensor values{}, weights{};
  double mean = kNaN;
};

SampleLosses sample_losses(Module& model, const at::Tensor& outputs, const at::Tensor& labels) {
  const std::int64_t count = outputs.size(0);
  SampleLosses losses{.values = at::full({count}, kIgnoredLoss, at::kDouble),
                      .weights = at::zeros({count}, at::kDouble)};
  double sum = 0, weights = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [loss, weight] = model.weighted_loss(outputs.narrow(0, i, 1), labels.narrow(0, i, 1));
    const double share = weight.defined() ? number_of(weight) : 1;
    if (share == 0) continue;
    const double value = number_of(loss);
    losses.values.mutable_data_ptr<double>()[i] = value;
    losses.weights.mutable_data_ptr<double>()[i] = share;
    sum += share * value;
    weights += share;
  }
  losses.mean = sum / weights;
  return losses;
}

// Sets the losses of the samples, or why there are none.
void set_losses(ReplayedBatch& result, Module& model, const Batch& batch, const at::Tensor& outputs,
                bool has_16_bits) {
  const auto has_rows = [&](const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) == batch.num_samples();
  };
  if (batch.tensors().size() < 2) {
    result.no_losses = "the batch has no labels";
  } else if (result.indices.defined() && result.indices.numel() != batch.num_samples()) {
    result.no_losses = "the data change the number of samples of a batch";
  } else if (!has_rows(outputs) || !has_rows(batch.labels())) {
    result.no_losses = "the outputs or the labels have no row per sample";
  } else {
    const double of_batch = number_of(model.weighted_loss(outputs, batch.labels()).loss);
    SampleLosses losses = sample_losses(model, outputs, batch.labels());
    result.mean_loss = losses.mean;
    if (are_close(losses.mean, of_batch, has_16_bits))
      result.losses = std::move(losses.values), result.weights = std::move(losses.weights);
    else
      result.no_losses = model.name() + "::loss() of the batch is " + short_text(of_batch, 4) +
                         ", which is not the mean over its samples, " + short_text(losses.mean, 4);
  }
}

}  // namespace

// Runs the forward pass once more than the run did, and takes back what it changes.
ReplayedBatch StepWatcher::watched(const Batch& batch, const at::Tensor& indices) {
  Module& model = *context_.state.model;
  ReplayedBatch result{.batch = copy_of_batch(batch), .indices = copy_of(indices)};
  const auto without_outputs = [&](const std::string& reason) {
    result.no_outputs = result.no_losses = reason;
    return result;
  };
  if (!layers_without_shape(model).empty())
    return without_outputs("lazy layers have no weights before the first step");
  const at::NoGradGuard no_grad;
  const RandomStateGuard random_state(context_.device());
  const ScopedModelState kept(model, ScopedModelState::Extent::buffers,
                              ScopedModelState::HiddenStates::of_evaluation);
  const MutedLog muted(context_.calls, context_.device());
  const Precision& precision = context_.placement.precision;
  const WideSums wide_sums(context_.device().is_cpu() && precision.has_16_bits());
  try {
    const AutocastScope autocast(precision, context_.device());
    const at::Tensor outputs = model.forward_inputs(batch);
    result.outputs = copy_of(outputs);
    if (model.updates_manually())
      result.no_losses = "a model with several optimizers has no single loss";
    else
      set_losses(result, model, batch, outputs, precision.has_16_bits());
  } catch (const std::exception& error) {
    (result.outputs.defined() ? result.no_losses : result.no_outputs) = error.what();
    if (!result.outputs.defined()) result.no_losses = "there are no outputs";
  }
  model.take_loss_weight();  // and other facts of a step
  return result;
}

void StepWatcher::before_batch(const Batch& batch, const at::Tensor& indices) {
  const Progress& at = context_.state.progress;
  if (current_.global_step != running_step()) {
    current_ = {.global_step = running_step(), .epoch = at.epoch + 1, .batch = at.batch};
    squared_norm_ = 0;
    if (current_.global_step == step_) current_.before = copy_of_values(*context_.state.model);
  }
  // Padding of ranks that have no more batches comes last.
  if (current_.global_step == step_ && batch.is_valid()) current_.batches.push_back(watched(batch, indices));
}

void StepWatcher::on_gradients(const Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, parameter] : distinct_parameters(*context_.state.model))
    names[parameter.unsafeGetTensorImpl()] = name;
  for (const at::Tensor& parameter : optimizer.parameters()) {
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.to_dense();
    const double norm = number_of(numbers_in_memory(gradient).to(at::kDouble).norm());
    squared_norm_ += norm * norm;
    if (current_.global_step != step_) continue;
    set_gradient(names[parameter.unsafeGetTensorImpl()], norm, gradient);
  }
}

// A ManualModule may update a parameter several times in a step: the last one counts.
void StepWatcher::set_gradient(const std::string& name, double norm, const at::Tensor& gradient) {
  auto& norms = current_.gradient_norms;
  auto& gradients = current_.gradients.tensors;
  const auto former = std::ranges::find(norms, name, &std::pair<std::string, double>::first);
  if (former == norms.end()) {
    norms.emplace_back(name, norm);
    gradients.emplace_back(name, copy_of(gradient));
    return;
  }
  former->second = norm;
  gradients[static_cast<std::size_t>(former - norms.begin())].second = copy_of(gradient);
}

void StepWatcher::after_batch(bool updated) {
  if (!updated || current_.global_step != context_.state.progress.global_step) return;
  current_.grad_norm = std::sqrt(squared_norm_);
  add_log_values();
  if (current_.global_step == step_) current_.after = copy_of_values(*context_.state.model);
  steps_.push_back(std::move(current_));
  current_ = {};
}

void StepWatcher::add_log_values() {
  EpochLog& log = context_.state.log;
  log.move_to_host();
  const std::int64_t end = log.num_rows();
  std::int64_t first = end - 1;
  while (first > 0 && log.step(first - 1) == current_.global_step) --first;
  const auto column = log.find_column("train_loss", EpochLog::Kind::mean);
  current_.lr = log.tag(end - 1).lr;
  current_.loss = column ? log.value(first, *column, end - first).value_or(kNaN) : kNaN;
  if (column) compare_losses(first);
}

// A custom training_step() may minimise something else than loss().
void StepWatcher::compare_losses(std::int64_t first_row) {
  const EpochLog& log = context_.state.log;
  const auto column = log.find_column("train_loss", EpochLog::Kind::mean);
  for (std::size_t i = 0; i < current_.batches.size(); ++i) {
    ReplayedBatch& batch = current_.batches[i];
    const auto loss = log.value(first_row + static_cast<std::int64_t>(i), *column);
    if (!batch.losses.defined() || !loss) continue;
    Module& model = *context_.state.model;
    if (are_close(batch.mean_loss, *loss, context_.placement.precision.has_16_bits())) continue;
    batch.losses = batch.weights = at::Tensor();
    batch.no_losses = model.name() + "::training_step() returns " + short_text(*loss, 4) +
                      ", the mean of loss() over the samples is " + short_text(batch.mean_loss, 4);
  }
}

}  // namespace kindling
