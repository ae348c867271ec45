// A metric with more than one sum, and a model whose outputs are known.
#pragma once

#include <ATen/Functions.h>

#include <span>

#include "kindling/nn/module.h"
#include "training/loop/small_fit.h"

namespace kindling {

// Counts of [label, output] for two classes. The number shows all of it: 11 samples with one 0 taken for a 1
// and ten 1s right are 11·10⁸ + 10·10⁶ + 1·10².
class Confusion2 : public Metric {
 public:
  at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const override {
    const at::Tensor cells = labels.mul(2).add(outputs);
    return cells.flatten().unsqueeze(1).eq(at::arange(4, cells.options())).sum(0).view({2, 2});
  }
  double compute(std::span<const double> sums, double num_samples) const override {
    EXPECT_EQ(sums.size(), 4U);
    return sums[0] + 1e2 * sums[1] + 1e4 * sums[2] + 1e6 * sums[3] + 1e8 * num_samples;
  }
};

// Gives its inputs back; its weight stays at 1, for the loss is about labels alone.
class Echo : public Slope {
 public:
  Echo() {
    const at::NoGradGuard no_grad;
    weight.fill_(1);
    add_metric("cells", std::make_shared<Confusion2>());
  }
  at::Tensor loss(const at::Tensor& y, const at::Tensor&) override { return (y * 0).sum(); }
};

// Eleven samples in batches of four: three 0s, of which one is taken for a 1, and eight 1s, of which two are
// taken for a 0.
inline TensorData eleven_answers(bool with_validation) {
  const at::Tensor labels = at::tensor({0.F, 1.F, 1.F, 0.F, 1.F, 1.F, 1.F, 0.F, 1.F, 1.F, 1.F}).unsqueeze(1);
  const at::Tensor outputs = at::tensor({0.F, 1.F, 0.F, 1.F, 1.F, 1.F, 1.F, 0.F, 1.F, 0.F, 1.F}).unsqueeze(1);
  std::vector<at::Tensor> val;
  if (with_validation) val = {outputs, labels};
  return {{outputs, labels}, val, {.batch_size = 4, .shuffle = false}};
}
inline constexpr double kElevenCells = 2 + 1e2 * 1 + 1e4 * 2 + 1e6 * 6 + 1e8 * 11;

}  // namespace kindling
