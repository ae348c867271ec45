#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/models/mlp.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// From the second step on: at the first one the device gets what stays there.
class LoopCounts : public Callback {
 public:
  void on_train_batch_end(Trainer& trainer, Module&) override {
    const auto progress = trainer.progress();
    if (progress.batch == 1) fake::reset_counts();
    if (progress.batch == progress.num_train_batches) counts = fake::counts();
  }
  fake::Counts counts;
};

TEST(FakeGradientNorms, NeverWait) {
  const auto counter = std::make_shared<LoopCounts>();
  const auto logger = std::make_shared<MemoryLogger>();
  NoiseImages data(16, 8, 4);
  Trainer({.max_epochs = 1,
           .num_gpus = 1,
           .num_sanity_val_steps = 0,
           .track_grad_norm = 2,
           .profile = true,
           .callbacks = {counter},
           .loggers = {logger}})
      .fit(std::make_shared<Mlp>(MlpOptions{.hidden = {16}}), data);
  EXPECT_EQ(counter->counts.host_waits(), 0);
  EXPECT_EQ(counter->counts.item_reads + counter->counts.data_dependent_ops, 0);
  EXPECT_EQ(counter->counts.device_to_host_copies, 0);
  std::size_t num_norms = 0;
  for (const auto& [name, value] : logger->records().back().values)
    num_norms += name.starts_with("grad_norm/") && value > 0 ? 1 : 0;
  EXPECT_EQ(num_norms, 4U);  // two layers
}

}  // namespace
}  // namespace kindling
