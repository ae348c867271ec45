#pragma once

#include "kindling/base/export.h"
#include "kindling/nn/module.h"

namespace kindling {

// A module whose outputs [batch, classes] are logits for labels [batch] (int64). Cross-entropy is the loss;
// train_acc, val_acc and test_acc are logged beside it.
class KINDLING_API Classifier : public Module {
 public:
  ~Classifier() override;

  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // Share of right answers, float scalar on the device of the outputs.
  at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) const;

  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override;
  void test_step(const Batch& batch) override;
};

}  // namespace kindling
