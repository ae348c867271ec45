#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/layer_summary.h"
#include "kindling/nn/module.h"

namespace kindling {

// A module whose outputs [batch, classes, …] are logits for labels [batch, …] (int64), or for class
// probabilities of the outputs' shape. The loss is cross-entropy; the accuracy is its first metric, `acc`.
class KINDLING_API Classifier : public Module {
 public:
  Classifier();
  ~Classifier() override;

  // Returns the mean over the labels that count (-100 is ignored), with class weights as PyTorch does: labels
  // are weighted by Σ weight·loss / Σ weight, class probabilities by class. Reports their weight, see
  // weighted(). Throws DataError for labels of another shape or
  // dtype and for another number of classes than of weights; checks only shapes and dtypes.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // Returns the fraction of correct top-1 predictions, a float scalar on the device of the outputs.
  at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) const;

  // Returns the layers and their shapes for an input [batch, …] of float zeros; see kindling::layer_summary.
  std::vector<LayerRow> layer_summary(at::IntArrayRef input_shape);

  // Weighs each class in the loss of training, validation and test, like the `weight` of PyTorch's
  // CrossEntropyLoss. Takes floating-point numbers [classes], finite, at least 0 and not all 0; copies them
  // to the CPU as float64. Undefined: no weights. They are options, not part of the state dict: set them
  // again before a resumed fit or an evaluation, but not during a fit. For weights that balance the classes,
  // see balanced_class_weights() in sampler.h. A step of several batches, ranks or shards has the gradient of
  // the weighted mean over all of its labels, and logged means of the loss are weighted means over all
  // labels, whatever the batches. As in PyTorch, the loss of a batch whose labels all have the weight 0 is
  // NaN. A subclass with its own loss() or training_step() applies them itself; a fit warns if loss() above
  // never ran. Throws ConfigError, and then keeps the weights that were set before.
  void set_class_weights(const at::Tensor& weights);
  const at::Tensor& class_weights() const noexcept { return class_weights_; }
  bool has_weighted_loss() const override { return class_weights_.defined(); }
  // True if loss() has used the present weights.
  bool has_used_class_weights() const noexcept { return !cast_weights_.empty(); }

  // The validation accuracy, higher is better.
  Monitor monitor() const override { return {.name = "val_acc", .higher_is_better = true}; }

 private:
  at::Tensor weights_like(const at::Tensor& outputs);

  at::Tensor class_weights_;  // float64 [classes] on the CPU; undefined: none
  std::vector<at::Tensor>
      cast_weights_;  // of each device and dtype that was used; captured steps refer to them
};

}  // namespace kindling
