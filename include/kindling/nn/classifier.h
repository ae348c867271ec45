#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/layer_summary.h"
#include "kindling/nn/module.h"

namespace kindling {

// A module whose outputs [batch, classes] are logits for labels [batch] (int64). Cross-entropy is the loss;
// train_acc, val_acc and test_acc are logged beside it, val_acc is plotted too.
class KINDLING_API Classifier : public Module {
 public:
  ~Classifier() override;

  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // Share of right answers, float scalar on the device of the outputs.
  at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) const;

  // The layers and their shapes for an input [batch, …] of float zeros; see kindling::layer_summary.
  std::vector<LayerRow> layer_summary(at::IntArrayRef input_shape);

  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override;
  void test_step(const Batch& batch) override;
};

}  // namespace kindling
