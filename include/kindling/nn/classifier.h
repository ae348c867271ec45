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

  // Throws DataError for labels of another shape or dtype; checks only shapes and dtypes.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // Returns the fraction of correct top-1 predictions, a float scalar on the device of the outputs.
  at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) const;

  // Returns the layers and their shapes for an input [batch, …] of float zeros; see kindling::layer_summary.
  std::vector<LayerRow> layer_summary(at::IntArrayRef input_shape);

  // The validation accuracy, higher is better.
  Monitor monitor() const override { return {.name = "val_acc", .higher_is_better = true}; }
};

}  // namespace kindling
