#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Their numbers are still on their way when the stop comes.
TEST(FakeStop, StepsOfTheStoppedEpochAreReported) {
  class StopAtThree : public Callback {
   public:
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (trainer.progress().global_step == 3) trainer.request_stop();
    }
  };
  const fake::LateCopies late;
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(10, 0, 2);
  Trainer({.max_epochs = 1,
           .num_gpus = 1,
           .log_every_n_steps = 1,
           .callbacks = {std::make_shared<StopAtThree>()},
           .loggers = {logger}})
      .fit(std::make_shared<Slope>(), data);
  std::vector<std::int64_t> steps;
  for (const Record& record : logger->records()) {
    EXPECT_EQ(record.kind, Record::Kind::step);
    steps.push_back(record.global_step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace kindling
