// Warnings about checkpoints.
#include <gtest/gtest.h>

#include "kindling/base/log.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/training/callback.h"
#include "kindling/training/model_checkpoint.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

struct Listening {
  Listening() {
    set_log_observer([this](LogLevel, const std::string& line) { text += line + "\n"; });
  }
  ~Listening() { set_log_observer({}); }
  std::string text;
};

struct StopsAtStep : Callback {
  explicit StopsAtStep(std::int64_t its_step) : step(its_step) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == step) trainer.request_stop();
  }
  std::int64_t step;
};

// The best checkpoint of a fit of four epochs.
std::filesystem::path best_of(ModelCheckpointOptions options, TrainerOptions trainer = {}) {
  const Scratch scratch(memory_folder());
  options.dirpath = scratch / "a";
  TensorData data = ramp(8, 4, 2);
  trainer.max_epochs = 4;
  trainer.optimizer = sgd(0.01);
  trainer.callbacks = {std::make_shared<ModelCheckpoint>(options)};
  return Trainer(trainer).fit(std::make_shared<Slope>(), data).best_checkpoint;
}

TEST(ToldCheckpoints, WarnOnceAboutAMissingMonitoredValue) {
  const Listening log;
  EXPECT_TRUE(best_of({.monitor = "val_los", .mode = "min"}).empty());
  EXPECT_NE(log.text.find("the record of epoch 1 has no 'val_los'"), std::string::npos) << log.text;
  EXPECT_NE(log.text.find("did you mean 'val_loss'?; without this value no checkpoint is marked as the best"),
            std::string::npos)
      << log.text;
  EXPECT_EQ(log.text.find("the record of epoch 2"), std::string::npos) << log.text;
}

TEST(ToldCheckpoints, AreSilentIfTheMonitoredValueExists) {
  const Listening log;
  EXPECT_FALSE(best_of({.monitor = "val_loss", .mode = "min"}).empty());
  EXPECT_FALSE(best_of({.monitor = "val_loss", .mode = "min"}, {.check_val_every_n_epoch = 2}).empty());
  EXPECT_EQ(log.text, "");
}

// A step that throws cannot be saved, and its error is reported once: by its catcher.
TEST(ToldCheckpoints, AreSilentIfAStepThrows) {
  struct ThrowsInStep : Slope {
    at::Tensor training_step(const Batch& batch) override {
      if (++step == 3) throw std::runtime_error("on purpose");
      return Slope::training_step(batch);
    }
    int step = 0;
  };
  for (const char* on_error : {"stop", "continue"}) {
    const Scratch scratch(memory_folder());
    const Listening log;
    const auto checkpoint = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "a", .every_n_steps = 1, .on_error = on_error});
    TensorData data = ramp(8, 4, 2);
    Trainer trainer({.max_epochs = 4, .optimizer = sgd(0.01), .callbacks = {checkpoint}});
    EXPECT_THROW(trainer.fit(std::make_shared<ThrowsInStep>(), data), std::runtime_error);
    EXPECT_EQ(log.text, "");
    EXPECT_TRUE(newest_valid_checkpoint(scratch / "a"));
  }
}

TEST(ToldCheckpoints, WarnAboutAnotherNumberOfBatchesWithinAnEpoch) {
  for (const bool is_inside : {true, false}) {
    const Scratch scratch(memory_folder());
    const auto go_on = [&](std::int64_t batch_size, std::int64_t max_epochs, std::int64_t stop) {
      TensorData data = ramp(8, 0, batch_size);
      const auto checkpoint = std::make_shared<ModelCheckpoint>(
          ModelCheckpointOptions{.dirpath = scratch / "a", .every_n_steps = 1});
      Trainer trainer(
          {.max_epochs = max_epochs, .callbacks = {std::make_shared<StopsAtStep>(stop), checkpoint}});
      return trainer.fit(std::make_shared<Slope>(), data, {.resume = checkpoint->last()});
    };
    go_on(2, is_inside ? 2 : 1, is_inside ? 3 : -1);
    const Listening log;
    EXPECT_EQ(go_on(1, 2, -1).progress.epoch, 2);
    const bool is_said =
        log.text.find("within an epoch of 4 batches, but epochs now have 8") != std::string::npos;
    EXPECT_EQ(is_said, is_inside) << log.text;
  }
}

}  // namespace
}  // namespace kindling
