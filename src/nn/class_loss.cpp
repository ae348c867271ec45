#include "kindling/nn/class_loss.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "kindling/base/error.h"
#include "metrics/class_labels.h"
#include "nn/weighted_losses.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_class_weights(std::string found) {
  throw ConfigError({.place = "Classifier::set_class_weights",
                     .found = std::move(found),
                     .wanted = "floating-point numbers [classes], finite, at least 0, one of them above 0"});
}

[[noreturn]] void refuse_option(const char* name, std::string found, std::string wanted) {
  throw ConfigError({.place = name, .found = std::move(found), .wanted = std::move(wanted)});
}

void refuse_weights_of_each_class() {
  refuse_option("class_weights", "the loss is one of several labels per sample (multi_label)",
                "pos_weight, the weight of the ones of each class");
}

// The smoothed terms of such a class would count without a weight to divide them by: their part of a step
// could not be combined with others.
void refuse_smoothed_zero(const ClassLossOptions& options, const at::Tensor& weights) {
  if (options.label_smoothing == 0 || !weights.defined()) return;
  const at::Tensor zeros = weights.eq(0).nonzero();
  if (zeros.size(0) > 0)
    refuse_option(
        "label_smoothing",
        "it is set, and class " + std::to_string(zeros[0].item<std::int64_t>()) + " has the weight 0",
        "class weights above 0; ignore_index leaves labels out");
}

void check(const ClassLossOptions& options) {
  validate(options, "ClassLoss");
  if (options.multi_label && options.label_smoothing > 0)
    refuse_option("label_smoothing", "it is set together with multi_label",
                  "a loss of one class per sample; or labels such as 0.05 and 0.95 in the data");
  if (!options.multi_label && !options.pos_weight.empty())
    refuse_option("pos_weight", "it is set, and the loss is one of one class per sample",
                  "class_weights, or multi_label = true");
}

// Returns numbers in the dtype of the loss of these outputs. Copies them once per device and dtype, so that a
// step copies and waits for nothing. Autocast computes losses in float32, so they must not be rounded to the
// dtype of the outputs.
at::Tensor cast_for(std::vector<at::Tensor>& casts, const at::Tensor& numbers, const at::Tensor& outputs) {
  at::ScalarType dtype = outputs.scalar_type();
  if (at::autocast::is_autocast_enabled(outputs.device().type()))
    dtype = at::promote_types(dtype, at::kFloat);
  for (const at::Tensor& cast : casts)
    if (cast.device() == outputs.device() && cast.scalar_type() == dtype) return cast;
  const at::NoGradGuard no_grad;
  return casts.emplace_back(numbers.to(outputs.options().dtype(dtype).requires_grad(false)));
}

at::Tensor number_of(const at::Tensor& outputs, std::int64_t number) {
  return at::full({}, static_cast<double>(number), outputs.options().dtype(at::kFloat).requires_grad(false));
}

}  // namespace

void ClassLoss::set_options(const ClassLossOptions& options) {
  check(options);
  if (options.multi_label && class_weights_.defined()) refuse_weights_of_each_class();
  refuse_smoothed_zero(options, class_weights_);
  options_ = options;
  pos_weight_ = options.pos_weight.empty() ? at::Tensor() : at::tensor(options.pos_weight, at::kDouble);
  cast_pos_weights_.clear();
  has_run_ = false;
}

void ClassLoss::set_class_weights(const at::Tensor& weights) {
  if (!weights.defined()) {
    cast_weights_.clear();
    class_weights_.reset();
    return;
  }
  if (options_.multi_label) refuse_weights_of_each_class();
  if (weights.dim() != 1 || weights.numel() == 0 || !weights.is_floating_point())
    refuse_class_weights("a tensor of the type " + type_text(weights));
  const at::Tensor values = weights.detach().to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (!at::isfinite(values).all().item<bool>() || values.lt(0).any().item<bool>())
    refuse_class_weights("a weight that is negative or not finite");
  if (values.eq(0).all().item<bool>()) refuse_class_weights("weights that are all 0");
  refuse_smoothed_zero(options_, values);
  cast_weights_.clear();
  class_weights_ = values;
}

WeightedLoss ClassLoss::operator()(const char* place, const at::Tensor& outputs, const at::Tensor& labels) {
  has_run_ = true;
  if (options_.multi_label) return of_each_class(place, outputs, labels);
  const bool by_number = labels.scalar_type() == at::kLong && are_class_numbers(outputs, labels);
  if (!by_number && !are_class_probabilities(outputs, labels)) refuse_class_labels(place, outputs, labels);
  const at::Tensor weights = weights_for(place, outputs);
  if (!by_number) return of_probabilities(outputs, labels, weights);
  const std::int64_t ignored = options_.ignore_index.value_or(kIgnoredLabel);
  if (options_.label_smoothing == 0 && options_.focal_gamma == 0)
    return cross_entropy(outputs, labels, weights, ignored);
  at::Tensor terms = log_probabilities_of(outputs);
  if (options_.focal_gamma > 0) terms = focal_terms(terms, options_.focal_gamma);
  return smoothed_nll(terms, labels, weights, ignored, options_.label_smoothing);
}

WeightedLoss ClassLoss::of_log_probabilities(const char* place, const at::Tensor& outputs,
                                             const at::Tensor& labels) {
  has_run_ = true;
  const at::Tensor weights = weights_for(place, outputs);
  const std::int64_t ignored = options_.ignore_index.value_or(kIgnoredLabel);
  if (options_.label_smoothing == 0 && options_.focal_gamma == 0)
    return nll(outputs, labels, weights, ignored);
  const at::Tensor terms = options_.focal_gamma > 0 ? focal_terms(outputs, options_.focal_gamma) : outputs;
  return smoothed_nll(terms, labels, weights, ignored, options_.label_smoothing);
}

// A mean over rows, also with class weights.
WeightedLoss ClassLoss::of_probabilities(const at::Tensor& outputs, const at::Tensor& labels,
                                         const at::Tensor& weights) {
  const double smoothing = options_.label_smoothing;
  const bool is_over_samples = outputs.dim() == 2 && !weights.defined();
  const at::Tensor weight =
      is_over_samples ? at::Tensor()
                      : number_of(outputs, outputs.numel() / std::max<std::int64_t>(outputs.size(1), 1));
  if (options_.focal_gamma == 0)
    return {at::cross_entropy_loss(outputs, labels, weights.defined() ? std::optional(weights) : std::nullopt,
                                   at::Reduction::Mean, kIgnoredLabel, smoothing),
            weight};
  const auto num_classes = static_cast<double>(outputs.size(1));
  at::Tensor terms = focal_terms(log_probabilities_of(outputs), options_.focal_gamma) *
                     (labels * (1 - smoothing) + smoothing / num_classes);
  if (weights.defined()) terms = terms * by_class(weights, outputs);
  return {terms.sum().neg() / (static_cast<double>(outputs.numel()) / num_classes), weight};
}

WeightedLoss ClassLoss::of_each_class(const char* place, const at::Tensor& outputs,
                                      const at::Tensor& labels) {
  if (outputs.sizes() != labels.sizes() || outputs.dim() == 0 || labels.is_complex())
    throw DataError({.place = place,
                     .found = "the labels are " + type_text(labels) + ", the outputs " + type_text(outputs),
                     .wanted = "a 0 or 1 for each output, " + shape_text(outputs.sizes()),
                     .remedy = "for one class number per sample, set multi_label = false"});
  const std::int64_t num_classes = outputs.dim() < 2 ? 1 : outputs.size(1);
  std::optional<at::Tensor> pos_weight;
  if (pos_weight_.defined()) {
    if (pos_weight_.size(0) != 1 && pos_weight_.size(0) != num_classes)
      throw ConfigError({.place = place,
                         .found = std::to_string(pos_weight_.size(0)) +
                                  " numbers in pos_weight, and outputs " + type_text(outputs),
                         .wanted = "one number, or " + std::to_string(num_classes) + ", one per class"});
    pos_weight = by_class(cast_for(cast_pos_weights_, pos_weight_, outputs), outputs);
  }
  // Labels between 0 and 1 must not be rounded to 16 bits.
  const bool is_wide = options_.focal_gamma > 0 || options_.ignore_index ||
                       at::autocast::is_autocast_enabled(outputs.device().type()) ||
                       (labels.is_floating_point() && labels.scalar_type() != outputs.scalar_type());
  const at::Tensor logits = is_wide ? at_least_float(outputs) : outputs;
  at::Tensor numbers = labels.to(logits.scalar_type());
  const at::Tensor weight = outputs.dim() > 2 ? number_of(outputs, outputs.numel()) : at::Tensor();
  if (options_.focal_gamma == 0 && !options_.ignore_index)
    return {at::binary_cross_entropy_with_logits(logits, numbers, {}, pos_weight, at::Reduction::Mean),
            weight};
  at::Tensor counts;
  if (options_.ignore_index) {
    counts = labels.ne(*options_.ignore_index);
    numbers = numbers.masked_fill(counts.logical_not(), 0);
  }
  at::Tensor losses =
      at::binary_cross_entropy_with_logits(logits, numbers, {}, pos_weight, at::Reduction::None);
  if (options_.focal_gamma > 0) {
    const at::Tensor p = logits.sigmoid();
    const at::Tensor missed = p + numbers - 2 * p * numbers;  // 1 − the probability of the label
    losses = losses * missed.clamp_min(1e-30).pow(options_.focal_gamma);
  }
  return counts.defined() ? masked_mean(losses, counts) : WeightedLoss{losses.mean(), weight};
}

at::Tensor ClassLoss::weights_for(const char* place, const at::Tensor& outputs) {
  if (!class_weights_.defined()) return {};
  if (outputs.dim() < 2 || class_weights_.size(0) != outputs.size(1))
    throw ConfigError({.place = place,
                       .found = std::to_string(class_weights_.size(0)) +
                                " class weights (model.class_weights), and outputs of " +
                                std::to_string(outputs.dim() < 2 ? 1 : outputs.size(1)) + " classes",
                       .wanted = "one weight per class",
                       .remedy = "num_classes (model.num_classes) is the number of classes"});
  return cast_for(cast_weights_, class_weights_, outputs);
}

void ClassLossModel::set_loss_options(const ClassLossOptions& options) { class_loss_.set_options(options); }

}  // namespace kindling
