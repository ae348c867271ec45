#include "kindling/training/trainer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

TEST(Trainer, HasTheFirstThreeOptionsOfD2l) {
  const Trainer trainer({10, 0, 1.5});
  EXPECT_EQ(trainer.options().max_epochs, 10);
  EXPECT_EQ(trainer.options().num_gpus, 0);
  EXPECT_EQ(trainer.options().gradient_clip_val, 1.5);
}

TEST(Trainer, UsesNoGpuByDefault) {
  const Trainer trainer({.max_epochs = 1});
  EXPECT_TRUE(trainer.gpus().empty());
  EXPECT_EQ(trainer.device(), cpu());
}

TEST(Trainer, LeavesBatchesOnTheHostWithoutAGpu) {
  const Trainer trainer({.max_epochs = 1});
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(trainer.prepare_batch(Batch{tensor})[0].is_same(tensor));
}

// The messages that are logged while it exists.
class LogWatch {
 public:
  LogWatch() {
    set_log_observer([this](LogLevel level, const std::string& message) {
      if (level == LogLevel::warning) warnings.push_back(message);
    });
  }
  ~LogWatch() { set_log_observer({}); }
  std::vector<std::string> warnings;
};

class TrainerWithoutCards : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() > 0) GTEST_SKIP() << "this machine has " << num_gpus();
  }
};

TEST_F(TrainerWithoutCards, TrainsOnTheCpuAndLogsTheReason) {
  LogWatch watch;
  const Trainer trainer({.max_epochs = 1, .num_gpus = 2});
  EXPECT_EQ(trainer.device(), cpu());
  EXPECT_EQ(watch.warnings, std::vector<std::string>{"num_gpus = 2, but " + gpu_unavailable_reason() +
                                                     "; continuing on the CPU"});
}

TEST_F(TrainerWithoutCards, WarnsIfAllGpusOfNoneAreRequested) {
  LogWatch watch;
  const Trainer trainer({.max_epochs = 1, .num_gpus = -1});
  EXPECT_EQ(watch.warnings.size(), 1);
}

TEST_F(TrainerWithoutCards, ThrowsIfGpusAreRequired) {
  LogWatch watch;
  const std::string text =
      error_text<DeviceError>([] { Trainer({.max_epochs = 1, .num_gpus = 1, .require_gpus = true}); });
  EXPECT_NE(text.find("Trainer: num_gpus = 1, but 0 can be used: " + gpu_unavailable_reason()),
            std::string::npos)
      << text;
  EXPECT_TRUE(watch.warnings.empty());
}

TEST(Trainer, DoesNotWarnAboutGpusThatAreNotRequested) {
  LogWatch watch;
  EXPECT_NO_THROW(Trainer({.max_epochs = 1, .require_gpus = true}));
  EXPECT_TRUE(watch.warnings.empty());
}

TEST(Trainer, NumberOfThreadsIsSetWhenGiven) {
  const int before = at::get_num_threads();
  { const Trainer trainer({.max_epochs = 1}); }
  EXPECT_EQ(at::get_num_threads(), before);
  { const Trainer trainer({.max_epochs = 1, .num_threads = 2}); }
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
}

// The optimizer: the options', else the model's, else Adam with rate 0.001.
class WithOptimizer : public Slope {
 public:
  std::unique_ptr<Optimizer> configure_optimizers() override {
    return std::make_unique<Sgd>(parameters(), SgdOptions{.lr = 0.25});
  }
};

double lr_after_one_step(TrainerOptions options, const std::shared_ptr<Module>& model) {
  TensorData data = ramp(2, 0, 2);
  options.max_epochs = 1;
  Trainer trainer(options);
  trainer.fit(model, data);
  return trainer.lr();
}

TEST(Trainer, OptimizerOfTheOptionsOverridesTheModels) {
  EXPECT_EQ(lr_after_one_step({.optimizer = sgd(0.5)}, std::make_shared<WithOptimizer>()), 0.5);
  EXPECT_EQ(lr_after_one_step({}, std::make_shared<WithOptimizer>()), 0.25);
  const auto plain = std::make_shared<Slope>();
  EXPECT_EQ(lr_after_one_step({}, plain), 1e-3);
  EXPECT_TRUE(close(plain->weight, at::full({1}, 1e-3f), 1e-6));  // Adam's first step is its rate
}

}  // namespace
}  // namespace kindling
