// How often a step of training calls an operator of LibTorch, which is what a step of a small model costs.
#include "support/operator_count.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/models/lenet.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// After each batch.
class CallCounter : public Callback {
 public:
  void on_train_batch_end(Trainer&, Module&) override { after_step.push_back(OperatorCount::now()); }

  std::vector<std::int64_t> after_step;

 private:
  OperatorCount count_;
};

constexpr std::int64_t kBatchSize = 8;

// Of a step in the middle of an epoch, from the batch that is gathered to the values that are logged.
std::int64_t calls_per_step(std::shared_ptr<Module> model, const at::Tensor& inputs, const at::Tensor& labels,
                            TrainerOptions options) {
  TensorData data({inputs, labels}, {}, {.batch_size = kBatchSize});
  const auto counter = std::make_shared<CallCounter>();
  options.max_epochs = 1;
  options.callbacks = {counter};
  Trainer(std::move(options)).fit(std::move(model), data);
  return counter->after_step.at(6) - counter->after_step.at(5);
}

struct CallsOfStep {
  std::string name;
  std::shared_ptr<Module> (*make_model)();
  std::vector<std::int64_t> sample_shape;
  // At most this many calls: plainly, with clipping, with a record of every step.
  std::int64_t plain, clipped, recorded;
};

template <class Model>
std::shared_ptr<Module> make() {
  return std::make_shared<Model>();
}

class OperatorCalls : public testing::TestWithParam<CallsOfStep> {
 protected:
  std::int64_t calls(TrainerOptions options) const {
    const CallsOfStep& expected = GetParam();
    std::vector<std::int64_t> shape = expected.sample_shape;
    shape.insert(shape.begin(), 10 * kBatchSize);
    const at::Tensor labels = expected.name == "linear_regression" ? at::ones({10 * kBatchSize, 1})
                                                                   : at::ones({10 * kBatchSize}, at::kLong);
    return calls_per_step(expected.make_model(), at::rand(shape), labels, std::move(options));
  }
};

TEST_P(OperatorCalls, DoNotIncrease) {
  EXPECT_LE(calls({.step_graph = "off"}), GetParam().plain);
  EXPECT_LE(calls({.gradient_clip_val = 1, .step_graph = "off"}), GetParam().clipped);
  EXPECT_LE(calls({.step_graph = "off", .log_every_n_steps = 1}), GetParam().recorded);
}

// The clocks call none, and the profiler is gone once its batches are over.
TEST_P(OperatorCalls, AreTheSameAfterAProfileHasEnded) {
  const Scratch scratch;
  const TrainerOptions profiled{.profile = true,
                                .profile_wait = 0,
                                .profile_warmup = 0,
                                .profile_active = 2,
                                .profile_dir = scratch.folder()};
  EXPECT_EQ(calls(profiled), calls({.step_graph = "off"}));
}

INSTANTIATE_TEST_SUITE_P(
    Models, OperatorCalls,
    testing::Values(CallsOfStep{"linear_regression", &make<LinearRegression>, {2}, 81, 113, 81},
                    CallsOfStep{"softmax_regression", &make<SoftmaxRegression>, {1, 8, 8}, 89, 119, 89},
                    CallsOfStep{"mlp", &make<Mlp>, {1, 8, 8}, 137, 177, 137},
                    CallsOfStep{"lenet", &make<Lenet>, {1, 28, 28}, 264, 334, 264},
                    CallsOfStep{"small_cnn", &make<SmallCnn>, {1, 8, 8}, 277, 347, 277}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kindling
