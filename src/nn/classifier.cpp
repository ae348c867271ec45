#include "kindling/nn/classifier.h"

#include <ATen/ops/zeros.h>

#include <exception>
#include <string>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/metrics/accuracy.h"
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

}  // namespace

Classifier::Classifier() { add_metric("acc", std::make_shared<Accuracy>()); }

Classifier::~Classifier() = default;

at::Tensor Classifier::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  try {
    const WeightedLoss loss = class_loss_("Classifier::loss", outputs, labels);
    if (!loss.weight.defined()) return loss.loss;
    const bool counts_labels = labels.scalar_type() == at::kLong && !class_weights().defined() &&
                               !loss_options().ignore_index && !loss_options().multi_label;
    if (counts_labels) keep_num_labels(labels, loss.weight);
    return weighted(loss);
  } catch (const c10::Error& error) {
    if (const auto label = label_out_of_range(error)) refuse_label(*this, *label, outputs);
    throw;
  }
}

void Classifier::set_loss_options(const ClassLossOptions& options) {
  ClassLossModel::set_loss_options(options);
  changed();
  add_metric("acc", std::make_shared<Accuracy>(AccuracyOptions{.ignore_index = options.ignore_index,
                                                               .multi_label = options.multi_label}));
}

void Classifier::set_class_weights(const at::Tensor& weights) {
  ClassLossModel::set_class_weights(weights);
  changed();
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
