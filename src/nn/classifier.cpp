#include "kindling/nn/classifier.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <exception>
#include <string>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/metrics/accuracy.h"
#include "metrics/class_labels.h"
#include "nn/class_loss.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_label(const Classifier& model, std::int64_t label, const at::Tensor& outputs) {
  const std::int64_t num_classes = outputs.size(1);
  std::throw_with_nested(DataError(
      {.place = model.name() + "::loss",
       .found = "a label of the data is " + std::to_string(label) + ", and the outputs have " +
                std::to_string(num_classes) + " classes, " + type_text(outputs),
       .wanted = "labels from 0 to " + std::to_string(num_classes - 1) + ", or -100, which is ignored",
       .remedy = label < 0 ? "correct the labels"
                           : "set num_classes (model.num_classes) to " + std::to_string(label + 1) +
                                 " or more, or correct the labels"}));
}

[[noreturn]] void refuse_weights(std::string found) {
  throw ConfigError({.place = "Classifier::set_class_weights",
                     .found = std::move(found),
                     .wanted = "floating-point numbers [classes], finite, at least 0, one of them above 0"});
}

}  // namespace

Classifier::Classifier() { add_metric("acc", std::make_shared<Accuracy>()); }

Classifier::~Classifier() = default;

at::Tensor Classifier::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool by_number = labels.scalar_type() == at::kLong && are_class_numbers(outputs, labels);
  if (!by_number && !are_class_probabilities(outputs, labels))
    refuse_class_labels("Classifier::loss", outputs, labels);
  const at::Tensor weights = class_weights_.defined() ? weights_like(outputs) : at::Tensor();
  try {
    if (!by_number) {  // a mean over rows, also with class weights
      const at::Tensor value = at::cross_entropy_loss(outputs, labels, weights);
      if (!weights.defined() && outputs.dim() == 2) return value;
      const auto num_rows = static_cast<double>(outputs.numel() / outputs.size(1));
      return weighted(
          {value, at::full({}, num_rows, outputs.options().dtype(at::kFloat).requires_grad(false))});
    }
    const WeightedLoss loss = cross_entropy(outputs, labels, weights);
    if (!weights.defined()) keep_num_labels(labels, loss.weight);
    return weighted(loss);
  } catch (const c10::Error& error) {
    if (const auto label = label_out_of_range(error)) refuse_label(*this, *label, outputs);
    throw;
  }
}

void Classifier::set_class_weights(const at::Tensor& weights) {
  if (!weights.defined()) {
    cast_weights_.clear();
    class_weights_.reset();
    return;
  }
  if (weights.dim() != 1 || weights.numel() == 0 || !weights.is_floating_point())
    refuse_weights("a tensor of the type " + type_text(weights));
  const at::Tensor values = weights.detach().to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (!at::isfinite(values).all().item<bool>() || values.lt(0).any().item<bool>())
    refuse_weights("a weight that is negative or not finite");
  if (values.eq(0).all().item<bool>()) refuse_weights("weights that are all 0");
  cast_weights_.clear();
  class_weights_ = values;
}

// Copies the weights once per device and dtype, so that a step copies and waits for nothing. Autocast
// computes the loss in float32, so the weights must not be rounded to the dtype of the outputs.
at::Tensor Classifier::weights_like(const at::Tensor& outputs) {
  if (class_weights_.size(0) != outputs.size(1))
    throw ConfigError({.place = name() + "::loss",
                       .found = std::to_string(class_weights_.size(0)) +
                                " class weights (model.class_weights or "
                                "model.balanced_class_weights), and outputs of " +
                                std::to_string(outputs.size(1)) + " classes",
                       .wanted = "one weight per class",
                       .remedy = "num_classes (model.num_classes) is the number of classes"});
  at::ScalarType dtype = outputs.scalar_type();
  if (at::autocast::is_autocast_enabled(outputs.device().type()))
    dtype = at::promote_types(dtype, at::kFloat);
  for (const at::Tensor& cast : cast_weights_)
    if (cast.device() == outputs.device() && cast.scalar_type() == dtype) return cast;
  const at::NoGradGuard no_grad;
  return cast_weights_.emplace_back(class_weights_.to(outputs.options().dtype(dtype)));
}

at::Tensor Classifier::accuracy(const at::Tensor& outputs, const at::Tensor& labels) const {
  return kindling::accuracy(outputs, labels);
}

std::vector<LayerRow> Classifier::layer_summary(at::IntArrayRef input_shape) {
  const auto own = parameters();
  const Device device = own.empty() || !own.front().defined() ? trainer().device() : own.front().device();
  return kindling::layer_summary(*this, Batch{at::zeros(input_shape, at::device(device))});
}

}  // namespace kindling
