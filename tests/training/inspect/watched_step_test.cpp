// The steps in which a trainer watches for host waits.
#include <gtest/gtest.h>

#include "kindling/base/log.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Reads its loss on the host in one step of the epochs from `first_epoch` on.
class WaitsAt : public Slope {
 public:
  explicit WaitsAt(std::int64_t batch, std::int64_t first_epoch = 0) : batch_(batch), epoch_(first_epoch) {}
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = Slope::training_step(batch);
    if (trainer().batch_index() == batch_ && trainer().epoch() >= epoch_) last_ = loss.item<float>();
    return loss;
  }

 private:
  std::int64_t batch_, epoch_;
  float last_ = 0;
};

std::size_t num_warnings_of(const std::shared_ptr<Module>& model) {
  std::size_t num_warnings = 0;
  configure_log({.level = LogLevel::warning});
  set_log_observer([&](LogLevel, const std::string& text) {
    num_warnings += text.find("training_step calls aten::item") != std::string::npos ? 1 : 0;
  });
  TensorData data = ramp(10, 0, 2);
  Trainer({.max_epochs = 3}).fit(model, data);
  set_log_observer({});
  configure_log({});
  return num_warnings;
}

TEST(WatchedStep, WatchesTheFirstTwoStepsOfAnEpoch) {
  EXPECT_EQ(num_warnings_of(std::make_shared<WaitsAt>(0)), 1U);
  EXPECT_EQ(num_warnings_of(std::make_shared<WaitsAt>(1)), 1U);
  EXPECT_EQ(num_warnings_of(std::make_shared<WaitsAt>(2)), 0U) << "it costs too much for every step";
}

TEST(WatchedStep, WatchesLaterEpochs) {
  EXPECT_EQ(num_warnings_of(std::make_shared<WaitsAt>(0, 1)), 1U);
  EXPECT_EQ(num_warnings_of(std::make_shared<WaitsAt>(1, 2)), 1U);
}

}  // namespace
}  // namespace kindling
