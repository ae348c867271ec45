// What a validation report copies to the host, counted by the device.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/training/validation_report.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class SameFields : public Slope {
 public:
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
  bool is_regressor() const override { return true; }
};

fake::Counts counts_of_report(const std::shared_ptr<Module>& model, const at::Tensor& inputs,
                              const at::Tensor& labels, std::int64_t batch_size) {
  TensorData data({inputs, labels}, {inputs, labels}, {.batch_size = batch_size});
  Trainer trainer({.num_gpus = 1});
  trainer.validate(model, data);  // creates the parameters of lazy layers
  fake::reset_counts();
  EXPECT_FALSE(validation_report(trainer, model, data).is_empty());
  return fake::counts();
}

// At the end: the worst samples, the matrix and the bins; or the worst samples and the residuals, or the
// errors of cells.
TEST(FakeValidationReport, IsCopiedToTheHostOnceHoweverManyBatchesThereAre) {
  const at::Tensor inputs = at::arange(3 * 12, at::kFloat).view({12, 3});
  const at::Tensor fields = at::arange(12 * 16, at::kFloat).view({12, 1, 4, 4});
  for (const std::int64_t batch_size : {1, 5, 12}) {
    const fake::Counts of_classes =
        counts_of_report(std::make_shared<SoftmaxRegression>(SoftmaxRegressionOptions{.num_classes = 4}),
                         inputs, at::arange(12, at::kLong).remainder(4), batch_size);
    EXPECT_EQ(of_classes.device_to_host_copies, 3);
    EXPECT_EQ(of_classes.item_reads + of_classes.data_dependent_ops, 0);
    const fake::Counts of_numbers =
        counts_of_report(std::make_shared<LinearRegression>(), inputs, at::ones({12, 1}), batch_size);
    EXPECT_EQ(of_numbers.device_to_host_copies, 2);
    EXPECT_EQ(of_numbers.item_reads + of_numbers.data_dependent_ops, 0);
    const fake::Counts of_fields =
        counts_of_report(std::make_shared<SameFields>(), fields, at::ones_like(fields), batch_size);
    EXPECT_EQ(of_fields.device_to_host_copies, 2);
    EXPECT_EQ(of_fields.item_reads + of_fields.data_dependent_ops, 0);
  }
}

}  // namespace
}  // namespace kindling
