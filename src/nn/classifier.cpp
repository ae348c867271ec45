#include "kindling/nn/classifier.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <exception>
#include <string>
#include <utility>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/metrics/accuracy.h"
#include "nn/weighted_losses.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_label(const Classifier& model, std::int64_t label, const at::Tensor& outputs) {
  const std::int64_t num_classes = outputs.size(1),
                     ignored = model.loss_options().ignore_index.value_or(kIgnoredLabel);
  std::throw_with_nested(DataError(
      {.place = model.name() + "::loss",
       .found = "a label of the data is " + std::to_string(label) + ", and the outputs have " +
                std::to_string(num_classes) + " classes, " + type_text(outputs),
       .wanted = "labels from 0 to " + std::to_string(num_classes - 1) + ", or " + std::to_string(ignored) +
                 ", which is ignored",
       .remedy = label == kIgnoredLabel ? "remove ignore_index (model.ignore_index): without it, labels "
                                          "of -100 are ignored"
                 : label < 0            ? "correct the labels"
                             : "set num_classes (model.num_classes) to " + std::to_string(label + 1) +
                                   " or more, or correct the labels"}));
}

}  // namespace

Classifier::Classifier() { add_metric("acc", std::make_shared<Accuracy>()); }

Classifier::~Classifier() = default;

at::Tensor Classifier::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  try {
    const WeightedLoss loss = class_loss_("Classifier::loss", outputs, labels);
    // A NaN shows in the loss also under a class weight of 0.
    const bool shows_nan = !loss_options().ignore_index && !loss_options().multi_label;
    if (shows_nan) keep_loss(outputs, loss.loss);
    if (!loss.weight.defined()) return loss.loss;
    if (shows_nan && !class_weights().defined() && labels.scalar_type() == at::kLong)
      keep_num_labels(labels, loss.weight);
    return weighted(loss);
  } catch (const c10::Error& error) {
    if (const auto label = label_out_of_range(error)) refuse_label(*this, *label, outputs);
    throw;
  }
}

void Classifier::set_loss_options(const ClassLossOptions& options) {
  ClassLossModel::set_loss_options(options);
  changed();
  if (dynamic_cast<const Accuracy*>(metric_of("val_acc").get()) == nullptr) return;  // of the user's own
  add_metric("acc", std::make_shared<Accuracy>(AccuracyOptions{.ignore_index = options.ignore_index,
                                                               .multi_label = options.multi_label}));
}

void Classifier::set_class_weights(const at::Tensor& weights) {
  ClassLossModel::set_class_weights(weights);
  changed();
}

at::Tensor Classifier::accuracy(const at::Tensor& outputs, const at::Tensor& labels) const {
  const at::NoGradGuard no_grad;
  const auto& [ignored, multi_label] = std::pair(loss_options().ignore_index, loss_options().multi_label);
  if (multi_label) {
    const at::Tensor is_right = outputs.gt(0).eq(labels.gt(0.5));
    const at::Tensor counts = ignored ? labels.ne(*ignored) : at::ones_like(is_right);
    return is_right.logical_and(counts).sum().to(at::kFloat).div(counts.sum());
  }
  return kindling::accuracy(outputs, ignored ? labels.masked_fill(labels.eq(*ignored), -100) : labels);
}

std::vector<LayerRow> Classifier::layer_summary(at::IntArrayRef input_shape) {
  const auto own = parameters();
  const Device device = own.empty() || !own.front().defined() ? trainer().device() : own.front().device();
  return kindling::layer_summary(*this, Batch{at::zeros(input_shape, at::device(device))});
}

}  // namespace kindling
