#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/class_loss.h"
#include "kindling/nn/layer_summary.h"
#include "kindling/nn/module.h"

namespace kindling {

// A module whose outputs [batch, classes, …] are logits for labels [batch, …] (int64), or for class
// probabilities of the outputs' shape; with multi_label for a 0 or 1 of each output. The loss is
// cross-entropy with the options of ClassLoss; the accuracy is its first metric, `acc`.
class KINDLING_API Classifier : public Module, public ClassLossModel {
 public:
  Classifier();
  ~Classifier() override;

  // Returns the mean over the labels that count (-100 is ignored unless ignore_index is set), see ClassLoss.
  // Reports their weight, see weighted(). Throws DataError for labels of another shape or
  // dtype and for another number of classes than of weights; checks only shapes and dtypes.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // Returns the fraction of correct top-1 predictions, a float scalar on the device of the outputs.
  at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) const;

  // Returns the layers and their shapes for an input [batch, …] of float zeros; see kindling::layer_summary.
  std::vector<LayerRow> layer_summary(at::IntArrayRef input_shape);

  // Also replaces the metric `acc` by one that respects them.
  void set_loss_options(const ClassLossOptions& options) override;
  void set_class_weights(const at::Tensor& weights) override;
  bool has_weighted_loss() const override { return class_weights().defined(); }

  // The validation accuracy, higher is better.
  Monitor monitor() const override { return {.name = "val_acc", .higher_is_better = true}; }
};

}  // namespace kindling
