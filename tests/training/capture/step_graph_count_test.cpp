// Operator calls and allocations of a replayed step.
#include <ATen/Functions.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kindling/models/lenet.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/training/callback.h"
#include "support/allocation_count.h"
#include "support/operator_count.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// After each batch: operators on this thread, those that others call included, and calls of operator new.
class StepsCounter : public Callback {
 public:
  explicit StepsCounter(std::size_t num_steps) {
    operators.reserve(num_steps);
    allocations.reserve(num_steps);
  }
  void on_train_batch_end(Trainer&, Module&) override {
    operators.push_back(OperatorCount::now());
    allocations.push_back(num_allocations().value_or(0));
  }
  std::vector<std::int64_t> operators, allocations;

 private:
  OperatorCount count_;
};

struct CountsOfStep {
  std::string name;
  std::shared_ptr<Module> (*make_model)();
  std::vector<std::int64_t> sample_shape;
  std::int64_t operators, allocations;  // at most so many
  std::int64_t allocations_with_avx2;   // where oneDNN's convolutions have no AVX-512
};

template <class Model>
std::shared_ptr<Module> counted() {
  return std::make_shared<Model>();
}

class ReplayedSteps : public testing::TestWithParam<CountsOfStep> {};

// In an epoch whose first batch was compared, from the batch that is gathered to the values that are logged.
TEST_P(ReplayedSteps, AreCheap) {
  const CountsOfStep& expected = GetParam();
  constexpr std::int64_t kBatches = 10, kSize = 8;
  std::vector<std::int64_t> shape = expected.sample_shape;
  shape.insert(shape.begin(), kBatches * kSize);
  const at::Tensor labels = expected.name == "linear_regression" ? at::ones({kBatches * kSize, 1})
                                                                 : at::ones({kBatches * kSize}, at::kLong);
  TensorData data({at::rand(shape), labels}, {}, {.batch_size = kSize});
  const auto counter = std::make_shared<StepsCounter>(2 * kBatches);
  Trainer({.max_epochs = 2, .callbacks = {counter}}).fit(expected.make_model(), data);
  const auto of_step = [](const std::vector<std::int64_t>& counts) { return counts.at(16) - counts.at(15); };
  EXPECT_LE(of_step(counter->operators), expected.operators);
  EXPECT_LE(of_step(counter->allocations),
            at::get_cpu_capability() == "AVX512" ? expected.allocations : expected.allocations_with_avx2);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ReplayedSteps,
    testing::Values(CountsOfStep{"linear_regression", &counted<LinearRegression>, {2}, 21, 37, 37},
                    CountsOfStep{"softmax_regression", &counted<SoftmaxRegression>, {1, 8, 8}, 23, 37, 37},
                    CountsOfStep{"mlp", &counted<Mlp>, {1, 8, 8}, 27, 38, 38},
                    CountsOfStep{"lenet", &counted<Lenet>, {1, 28, 28}, 70, 1985, 2041},
                    CountsOfStep{"small_cnn", &counted<SmallCnn>, {1, 8, 8}, 92, 1900, 1955}),
    [](const auto& info) { return info.param.name; });

// The gradients of a window have memory of their own: those of a replay are in use until they are dropped,
// and the next batch would be computed operator by operator (102 to 111).
TEST(ReplayedWindows, ReplayAllTheirBatches) {
  constexpr std::int64_t kBatches = 12, kSize = 8;
  TensorData data({at::rand({kBatches * kSize, 1, 8, 8}), at::ones({kBatches * kSize}, at::kLong)}, {},
                  {.batch_size = kSize});
  const auto counter = std::make_shared<StepsCounter>(2 * kBatches);
  Trainer({.max_epochs = 2, .accumulate_grad_batches = 3, .callbacks = {counter}})
      .fit(std::make_shared<Mlp>(), data);
  for (std::size_t i = 16; i < counter->operators.size(); ++i)
    EXPECT_LE(counter->operators[i] - counter->operators[i - 1], 30) << i;
}

}  // namespace
}  // namespace kindling
