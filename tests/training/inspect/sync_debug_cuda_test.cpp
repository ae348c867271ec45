// Built where LibTorch has CUDA; elsewhere only compiled, where a CUDA toolkit has its headers.
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "kindling/data/digits.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

// Every wait inside the loop of an epoch becomes an error of LibTorch; the epoch's end may wait.
class NoWaitInsideTheLoop : public Callback {
 public:
  ~NoWaitInsideTheLoop() override { set(c10::cuda::SyncDebugMode::L_DISABLED); }
  void on_train_epoch_start(Trainer&, Module&) override { set(c10::cuda::SyncDebugMode::L_ERROR); }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    ++num_steps;
    const TrainerProgress at = trainer.progress();
    if (at.batch == at.num_train_batches) set(c10::cuda::SyncDebugMode::L_DISABLED);
  }

  int num_steps = 0;

 private:
  static void set(c10::cuda::SyncDebugMode mode) { c10::cuda::warning_state().set_sync_debug_mode(mode); }
};

TEST(SyncDebugCuda, WholeEpochsRunWithoutAWait) {
  if (num_gpus() == 0) GTEST_SKIP() << "there is no cuda:0";
  for (const std::int64_t log_every_n_steps : {0, 1}) {
    const auto guard = std::make_shared<NoWaitInsideTheLoop>();
    Digits data({.batch_size = 64});
    Trainer trainer({.max_epochs = 3,
                     .num_gpus = 1,
                     .gradient_clip_val = 1.0,
                     .log_every_n_steps = log_every_n_steps,
                     .schedule = cosine_schedule(),
                     .callbacks = {guard}});
    const FitResult result = trainer.fit(std::make_shared<Mlp>(), data);
    EXPECT_EQ(guard->num_steps, 3 * 23);
    // For the log of the training and the one of the validation; where step records are asked for, none if
    // all rows have arrived when an epoch ends, or one more for those on their way.
    const double waits = result.metrics.at("host_waits");
    EXPECT_GE(waits, log_every_n_steps == 0 ? 2 : 1);
    EXPECT_LE(waits, log_every_n_steps == 0 ? 2 : 3);
  }
}

}  // namespace
}  // namespace kindling
