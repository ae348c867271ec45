#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

using torch::autograd::AnomalyMode;

// The loss is finite in every step; at one step the gradient of a square root is 0/0.
class RootOfZero : public Slope {
 public:
  explicit RootOfZero(std::int64_t at_step = -1) : at_step_(at_step) {}
  at::Tensor training_step(const Batch& batch) override {
    was_on.push_back(AnomalyMode::is_enabled() && AnomalyMode::should_check_nan());
    const at::Tensor loss = Slope::training_step(batch);
    return trainer().global_step() == at_step_ ? loss + (weight * 0).sqrt().sum() * 0 : loss;
  }
  std::vector<bool> was_on;

 private:
  std::int64_t at_step_;
};

// Of a fit, whose log is silent and whose stderr is `printed`.
std::string error_of_fit(std::shared_ptr<Module> model, TrainerOptions options,
                         std::string* printed = nullptr) {
  options.max_epochs = 1;
  options.optimizer = sgd(0.125);
  TensorData data = ramp(6, 2, 2);
  testing::internal::CaptureStderr();
  std::string text = error_text<Error>([&] { Trainer(options).fit(model, data); });
  std::string output = testing::internal::GetCapturedStderr();
  if (printed != nullptr) *printed = std::move(output);
  return text;
}

TEST(AnomalyMode, NamesTheOperatorAndTheStep) {
  std::string log, printed;
  configure_log({.level = LogLevel::info});
  set_log_observer([&](LogLevel, const std::string& text) { log += text; });
  const std::string error = error_of_fit(std::make_shared<RootOfZero>(1), {.detect_anomaly = true}, &printed);
  set_log_observer({});
  configure_log({});
  EXPECT_NE(error.find("step 2 of "), std::string::npos) << error;
  EXPECT_NE(error.find("the gradient of the operator Sqrt (SqrtBackward0) is NaN"), std::string::npos)
      << error;
  EXPECT_NE(log.find("Error detected in SqrtBackward0. Traceback of forward call"), std::string::npos) << log;
  EXPECT_EQ(printed, "") << "the terminal is the host program's";
}

TEST(AnomalyMode, IsOffByDefault) {
  const auto model = std::make_shared<RootOfZero>(1);
  EXPECT_EQ(error_of_fit(model, {}), "(no error)") << "on_nonfinite has kept the step from the parameters";
  EXPECT_EQ(std::count(model->was_on.begin(), model->was_on.end(), true), 0);
}

TEST(AnomalyMode, IsSetInStepsAndRestored) {
  for (const bool is_on_before : {false, true}) {
    AnomalyMode::set_enabled(is_on_before, /*check_nan=*/false);
    const auto model = std::make_shared<RootOfZero>();
    EXPECT_EQ(error_of_fit(model, {.detect_anomaly = true}), "(no error)");
    EXPECT_EQ(model->was_on, std::vector<bool>(3, true));
    EXPECT_EQ(AnomalyMode::is_enabled(), is_on_before);
    EXPECT_FALSE(AnomalyMode::should_check_nan());
    error_of_fit(std::make_shared<RootOfZero>(0), {.detect_anomaly = true});
    EXPECT_EQ(AnomalyMode::is_enabled(), is_on_before) << "after an error";
  }
  AnomalyMode::set_enabled(false, true);
}

TEST(AnomalyMode, IsSetInStepsOfACustomLoop) {
  Trainer trainer({.max_epochs = 1, .detect_anomaly = true, .optimizer = sgd(0.125)});
  trainer.prepare_model(std::make_shared<RootOfZero>(1));
  const Batch batch{at::ones({2, 1}), at::ones({2, 1})};
  trainer.train_step(batch);
  EXPECT_NE(error_text<Error>([&] { trainer.train_step(batch); }).find("SqrtBackward0"), std::string::npos);
  EXPECT_FALSE(AnomalyMode::is_enabled());
}

TEST(AnomalyMode, IsSetInUpdatesOfSeveralOptimizers) {
  const auto model = std::make_shared<PointGan>();
  model->poison = 2;  // divides a loss by zero: 0 · inf in what comes before
  TensorData data = gan_points();
  const std::string error =
      error_text<Error>([&] { Trainer({.max_epochs = 1, .detect_anomaly = true}).fit(model, data); });
  EXPECT_NE(error.find("step 2 of "), std::string::npos) << error;
  EXPECT_NE(error.find("Backward0) is NaN"), std::string::npos) << error;
}

}  // namespace
}  // namespace kindling
