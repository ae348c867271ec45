// The cost of the guard on a device: no wait, and no copy in addition to that of the log.
#include <iostream>

#include "fake_accelerator.h"
#include "training/step/nonfinite_fit.h"

namespace kindling {
namespace {

// From the first step to the last, and what the end of the epoch copies before anything is replayed.
class LoopCounter : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer&, Module&) override { loop = fake::counts(); }
  void on_epoch_end(Trainer&, Module&, const Record&) override { epoch = fake::counts(); }
  fake::Counts loop, epoch;
};

TEST(FakeNonfinite, GuardNeverWaits) {
  int tries = 0;
  for (const auto& [name, rule] : guarded_rules())
    for (std::int64_t k = 1; k <= kPoisonBatches; ++k)
      for (const Poison poison : kPoisons)
        for (const char* mode : {"stop", "skip"}) {
          if (std::string(mode) == "skip" && k % 5 != 0) continue;
          TensorData data = poisoned_data(poison, k);
          const auto counter = std::make_shared<LoopCounter>();
          const PoisonRun run = poison_run(
              {.num_gpus = 1, .on_nonfinite = mode, .optimizer = rule, .callbacks = {counter}}, data);
          EXPECT_EQ(counter->loop.host_waits(), 0) << name << ", step " << k;
          EXPECT_EQ(counter->loop.device_to_host_copies, 0) << name << ", step " << k;
          EXPECT_EQ(counter->loop.blocking_host_to_device_copies, 0) << name << ", step " << k;
          if (run.result.status == FitStatus::finished) {
            EXPECT_EQ(counter->epoch.device_to_host_copies, 1) << name << ", step " << k;
            EXPECT_EQ(counter->epoch.host_waits(), 1) << name << ", step " << k;
          }
          EXPECT_EQ(run.result.status == FitStatus::finished, std::string(mode) == "skip");
          ++tries;
        }
  std::cout << tries << " poisoned fits without a wait\n";
}

// One operator for loss and gradients, one more to log its finding; with a norm the gradients are not read.
TEST(FakeNonfinite, GuardIsOneOperatorPerStep) {
  for (const double clip : {0., 1.}) {
    TensorData data = poisoned_data(Poison::none, 1);
    fake::reset_counts();
    poison_run({.num_gpus = 1, .gradient_clip_val = clip}, data);
    EXPECT_EQ(fake::operator_calls("aten::_amp_foreach_non_finite_check_and_unscale_"), kPoisonBatches);
    fake::reset_counts();
    poison_run({.num_gpus = 1, .gradient_clip_val = clip, .on_nonfinite = "ignore"}, data);
    EXPECT_EQ(fake::operator_calls("aten::_amp_foreach_non_finite_check_and_unscale_"), 0);
  }
}

}  // namespace
}  // namespace kindling
