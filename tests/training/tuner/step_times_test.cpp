// The measurement of steps: what it counts, and that it leaves nothing behind.
#include "kindling/training/step_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/models/small_cnn.h"
#include "kindling/tensors/state_dict.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Each of its forwards takes a while.
class SleepsInForward : public Slope {
 public:
  at::Tensor forward(const at::Tensor& x) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return Slope::forward(x);
  }
};

TrainerOptions eager_steps() { return {.max_epochs = 2, .step_graph = "off", .optimizer = sgd(0.1)}; }

TEST(StepTimes, MeasuresTimesAndShares) {
  TensorData data = ramp(20, 4, 5);
  const auto model = std::make_shared<SleepsInForward>();
  const StepTimes times = measure_steps(eager_steps(), model, data, {.warm_up_steps = 3, .steps = 7});
  EXPECT_EQ(model->train_sizes.size(), 10U);
  EXPECT_EQ(model->num_val_batches, 0);
  EXPECT_GE(times.seconds, 3e-3);
  EXPECT_GT(times.cpu_seconds, 0);
  EXPECT_LT(times.cpu_seconds, times.seconds);  // asleep
  EXPECT_GT(times.forward_backward, 0.5);       // the rest of such a step takes far less than 3 ms
  EXPECT_NEAR(times.data + times.forward_backward + times.update + times.log + times.rest, 1, 1e-6);
  EXPECT_EQ(times.why_not_recorded, "step_graph is off");
  ASSERT_FALSE(times.last_step.empty());
  EXPECT_EQ(times.last_step[0].first, "train_loss");
}

TEST(StepTimes, CountsOptimizerSteps) {
  TensorData data = ramp(20, 0, 5);
  const auto model = std::make_shared<SleepsInForward>();
  TrainerOptions options = eager_steps();
  options.accumulate_grad_batches = 2;
  const StepTimes times = measure_steps(options, model, data, {.warm_up_steps = 3, .steps = 1});
  EXPECT_EQ(model->train_sizes.size(), 8U);
  EXPECT_GE(times.seconds, 6e-3);  // both batches of the step
}

// Its first batch takes long.
class SlowToStart : public TensorData {
 public:
  SlowToStart() : TensorData(ramp(20, 0, 5)) {}
  Batch on_after_batch_transfer(Batch batch) override {
    if (is_first_) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    is_first_ = false;
    return batch;
  }

 private:
  bool is_first_ = true;
};

TEST(StepTimes, SharesCoverTheMeasuredSteps) {
  SlowToStart data;
  const StepTimes times = measure_steps(eager_steps(), std::make_shared<SleepsInForward>(), data,
                                        {.warm_up_steps = 1, .steps = 5});
  EXPECT_LT(times.data, 0.5);  // 100 ms against 15 ms, if the first batch were among them
}

TEST(StepTimes, LastStepMatchesThatOfAFit) {
  TensorData data = ramp(20, 0, 5);
  const auto logged = std::make_shared<MemoryLogger>();
  TrainerOptions options = eager_steps();
  options.max_epochs.reset();
  options.max_steps = 6;
  options.log_every_n_steps = 1;
  options.loggers = {logged};
  Trainer(options).fit(std::make_shared<Slope>(), data);
  const StepTimes times =
      measure_steps(eager_steps(), std::make_shared<Slope>(), data, {.warm_up_steps = 2, .steps = 4});
  double last = 0;
  for (const Record& record : logged->records())
    if (record.kind == Record::Kind::step) last = value_of(record, "train_loss_step");
  EXPECT_GT(last, 0);
  EXPECT_EQ(times.last_step[0].second, last);
}

TEST(StepTimes, LeavesModelAndRandomStateUnchanged) {
  const auto weights_after = [](bool measures) {
    at::manual_seed(7);
    const auto model = std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
    NoiseImages data(32, 8, 8);
    TrainerOptions options = eager_steps();
    options.step_graph = "on";
    if (measures) {
      EXPECT_EQ(measure_steps(options, model, data, {.warm_up_steps = 5, .steps = 5}).why_not_recorded, "");
    }
    Trainer(options).fit(model, data);
    return state_dict(*model);
  };
  const StateDict measured = weights_after(true), alone = weights_after(false);
  ASSERT_EQ(measured.tensors.size(), alone.tensors.size());
  for (std::size_t i = 0; i < alone.tensors.size(); ++i)
    EXPECT_TRUE(same(measured.tensors[i].second, alone.tensors[i].second)) << alone.tensors[i].first;
}

// Its steps read a number on the host.
class ReadsItsWeight : public Slope {
 public:
  at::Tensor forward(const at::Tensor& x) override { return x * (weight + 0 * weight.item<float>()); }
};

// Its loss is not finite.
class NeverFinite : public Slope {
 public:
  at::Tensor forward(const at::Tensor& x) override { return Slope::forward(x) / 0.0; }
};

TEST(StepTimes, ReportWhyStepsAreNotCaptured) {
  TensorData data = ramp(20, 0, 5);
  TrainerOptions options = eager_steps();
  options.step_graph = "auto";
  EXPECT_EQ(measure_steps(options, std::make_shared<Slope>(), data, {.steps = 5}).why_not_recorded,
            "has_static_graph() of the model is false");
  options.step_graph = "on";
  const StepTimes times = measure_steps(options, std::make_shared<ReadsItsWeight>(), data, {.steps = 5});
  EXPECT_NE(times.why_not_recorded.find("the host reads"), std::string::npos) << times.why_not_recorded;
}

TEST(StepTimes, ThrowForARunThatDiverges) {
  TensorData data = ramp(20, 0, 5);
  EXPECT_THROW(measure_steps(eager_steps(), std::make_shared<NeverFinite>(), data, {.steps = 5}), Error);
}

TEST(StepTimes, RefusesZeroSteps) {
  TensorData data = ramp(20, 0, 5);
  EXPECT_THROW(measure_steps(eager_steps(), std::make_shared<Slope>(), data, {.steps = 0}), ConfigError);
  EXPECT_THROW(measure_steps(eager_steps(), std::make_shared<Slope>(), data, {.warm_up_steps = 0}),
               ConfigError);
}

}  // namespace
}  // namespace kindling
