// A trainer on a machine with two GPUs.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <thread>

#include "fake_accelerator.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/models/mlp.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

TEST(FakeTrainer, UsesTheFirstOfTheAvailableGpus) {
  EXPECT_EQ(Trainer({.max_epochs = 1, .num_gpus = 1}).gpus(), std::vector<Device>{fake::device(0)});
  EXPECT_EQ(Trainer({.max_epochs = 1, .num_gpus = -1}).gpus().size(), 2);
  EXPECT_EQ(Trainer({.max_epochs = 1, .num_gpus = 2}).device(), fake::device(0));
  EXPECT_EQ(Trainer({.max_epochs = 1}).device(), cpu());
}

TEST(FakeTrainer, WarnsIfThereAreFewerGpusThanRequested) {
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  const Trainer trainer({.max_epochs = 1, .num_gpus = 5});
  set_log_observer({});
  EXPECT_EQ(trainer.gpus().size(), 2);
  EXPECT_EQ(
      messages,
      (std::vector<std::string>{
          "num_gpus = 5: this process trains on the first GPU only; to use the others, start one process "
          "per GPU and set process_group (`kindling fit` does this automatically)",
          "num_gpus = 5, but only 2 are visible; continuing on the first GPU"}));
  EXPECT_THROW(Trainer({.max_epochs = 1, .num_gpus = 5, .require_gpus = true}), DeviceError);
}

TEST(FakeTrainer, LogsOncePerProcessThatTheGpuIsUnused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process in which no other test has used the CPU
  static const char* const kMessage =
      "num_gpus = 0: training on the CPU, although this machine has a GPU; 1 uses it";
  EXPECT_EXIT(
      {
        std::vector<std::string> messages;
        set_log_observer([&](LogLevel level, const std::string& message) {
          if (level == LogLevel::info) messages.push_back(message);
        });
        Trainer({.max_epochs = 1, .num_gpus = 1});
        const bool is_quiet_on_gpu = messages.empty();
        Trainer({.max_epochs = 1});
        Trainer({.max_epochs = 1});
        std::_Exit(is_quiet_on_gpu && messages == std::vector<std::string>{kMessage} ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(FakeTrainer, WarnsThatTheSecondGpuIsUnused) {
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  Trainer({.max_epochs = 1, .num_gpus = 1});
  EXPECT_TRUE(messages.empty());
  Trainer({.max_epochs = 1, .num_gpus = 2});
  set_log_observer({});
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_NE(messages[0].find("num_gpus = 2: this process trains on the first GPU only"), std::string::npos);
}

TEST(FakeTrainer, MixedDevicesAreAnErrorThatNamesBoth) {
  class Careless : public Slope {  // makes a tensor on the host in its step
   public:
    at::Tensor forward(const at::Tensor& x) override { return x * weight + at::ones({1}); }
  };
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 1, .num_gpus = 1});
  const std::string text = error_text<DeviceError>([&] { trainer.fit(std::make_shared<Careless>(), data); });
  EXPECT_NE(text.find("Trainer::fit: Expected all tensors to be on the same device"), std::string::npos)
      << text;
  EXPECT_NE(text.find("fake:0 and cpu"), std::string::npos) << text;
  EXPECT_NE(text.find("move it with kindling::move_to"), std::string::npos) << text;
}

TEST(FakeTrainer, MovesAModelFromTheOtherGpu) {
  const auto model = std::make_shared<Slope>();
  model->to(fake::device(1));
  TensorData data = ramp(2, 0, 2);
  Trainer({.max_epochs = 1, .num_gpus = 1, .optimizer = sgd(0.125)}).fit(model, data);
  EXPECT_EQ(model->weight.device(), fake::device(0));
  EXPECT_TRUE(same(model->weight, at::tensor({0.0625f})));
}

TEST(FakeTrainer, CountsTransfersPerThread) {
  const auto train = [](std::int64_t epochs, double& waits) {
    const auto logger = std::make_shared<MemoryLogger>();
    TensorData data = ramp(6, 0, 2);
    Trainer({.max_epochs = epochs, .num_gpus = 1, .loggers = {logger}}).fit(std::make_shared<Slope>(), data);
    for (const Record& record : logger->records()) waits += value_of(record, "host_waits");
  };
  double few = 0, many = 0;
  std::thread first([&] { train(2, few); }), second([&] { train(20, many); });
  first.join();
  second.join();
  EXPECT_EQ(few, 2);
  EXPECT_EQ(many, 20);
}

}  // namespace
}  // namespace kindling
