#include "kindling/training/callback.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/tensor_matchers.h"
#include "training/small_fit.h"

namespace kindling {
namespace {

// Notes what it is told, one word each.
class Diary : public Callback, public Logger {
 public:
  void on_fit_start(Trainer& trainer, Module&) override {
    note("fit_start " + std::to_string(trainer.progress().num_train_batches));
  }
  void on_train_epoch_start(Trainer& trainer, Module&) override {
    note("epoch_start " + std::to_string(trainer.progress().epoch));
  }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    note("batch_end " + std::to_string(trainer.progress().batch_index) + "/" +
         std::to_string(trainer.progress().global_step));
  }
  void on_epoch_end(Trainer& trainer, Module&, const Record& record) override {
    note("epoch_end " + std::to_string(trainer.progress().epoch) + " " + std::to_string(record.epoch));
  }
  void on_fit_end(Trainer&, Module&, const FitResult& result) override {
    note("fit_end " + std::to_string(result.num_epochs));
  }
  void write(const Record& record) override { note("record " + std::to_string(record.epoch)); }
  void finish() override { note("finish"); }

  std::vector<std::string> notes;

 private:
  void note(std::string text) { notes.push_back(std::move(text)); }
};

TEST(Callback, IsCalledInOrder) {
  const auto diary = std::make_shared<Diary>();
  TensorData data = ramp(3, 2, 2);
  Trainer({.max_epochs = 2, .callbacks = {diary}, .loggers = {diary}}).fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(diary->notes,
            (std::vector<std::string>{"fit_start 2", "epoch_start 0", "batch_end 1/1", "batch_end 2/2",
                                      "record 1", "epoch_end 0 1", "epoch_start 1", "batch_end 1/3",
                                      "batch_end 2/4", "record 2", "epoch_end 1 2", "finish", "fit_end 2"}));
}

// Keeps a layer in evaluation mode while the rest of the model trains, as fine-tuning does with batch norm.
class Freeze : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module& model) override { model.children().at(0)->eval(); }
  void on_train_batch_end(Trainer&, Module& model) override {
    modes.emplace_back(model.is_training(), model.children().at(0)->is_training());
  }
  std::vector<std::pair<bool, bool>> modes;
};

TEST(Callback, MayFreezeALayerForAnEpoch) {
  const auto freeze = std::make_shared<Freeze>();
  const auto model = std::make_shared<Slope>();
  model->register_module("norm", torch::nn::BatchNorm1d(1));
  TensorData data = ramp(2, 2, 2);
  Trainer({.max_epochs = 2, .callbacks = {freeze}}).fit(model, data);
  EXPECT_EQ(freeze->modes, (std::vector<std::pair<bool, bool>>{{true, false}, {true, false}}));
}

class StopAt : public Callback {
 public:
  explicit StopAt(std::int64_t step) : step_(step) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == step_) trainer.request_stop();
  }

 private:
  std::int64_t step_;
};

TEST(RequestStop, EndsAfterTheStepWithoutValidation) {
  const auto model = std::make_shared<Slope>();
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(9, 4, 2);
  Trainer trainer({.max_epochs = 5,
                   .num_sanity_val_steps = 0,
                   .callbacks = {std::make_shared<StopAt>(7)},
                   .loggers = {logger}});
  const FitResult result = trainer.fit(model, data);
  EXPECT_EQ(result.status, FitStatus::stopped);
  EXPECT_EQ(result.global_step, 7);
  EXPECT_EQ(result.num_epochs, 2);
  EXPECT_EQ(model->num_val_batches, 2);  // after the first epoch only
  ASSERT_EQ(logger->records().size(), 2);
  EXPECT_EQ(logger->records()[1].global_step, 7);
  EXPECT_EQ(logger->records()[1].find("val_loss"), nullptr);
}

TEST(RequestStop, HoldsForOneFit) {
  TensorData data = ramp(9, 0, 2);
  const auto model = std::make_shared<Slope>();
  Trainer trainer({.max_epochs = 1});
  trainer.request_stop();
  EXPECT_EQ(trainer.fit(model, data).global_step, 0);
  const FitResult second = trainer.fit(model, data);
  EXPECT_EQ(second.status, FitStatus::finished);
  EXPECT_EQ(second.global_step, 5);
}

TEST(RequestStop, IsForgottenWhenFitThrows) {
  class StopAndThrow : public Callback {
   public:
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (std::exchange(is_first_, false)) {
        trainer.request_stop();
        throw std::logic_error("enough");
      }
    }

   private:
    bool is_first_ = true;
  };
  TensorData data = ramp(4, 0, 2);
  const auto model = std::make_shared<Slope>();
  Trainer trainer({.max_epochs = 1, .callbacks = {std::make_shared<StopAndThrow>()}});
  EXPECT_THROW(trainer.fit(model, data), std::logic_error);
  EXPECT_FALSE(trainer.stop_token().stop_requested());
  EXPECT_NO_THROW(model->log("x", at::ones({1})));
  EXPECT_EQ(trainer.fit(model, data).global_step, 2);
}

// Lets another thread know that training runs.
class Started : public Callback {
 public:
  void on_train_batch_end(Trainer&, Module&) override {
    const std::lock_guard lock(mutex_);
    started_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
};

TEST(RequestStop, MayComeFromAnotherThread) {
  const auto started = std::make_shared<Started>();
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 1'000'000'000, .callbacks = {started}});
  std::thread stopper([&started, token = trainer.stop_token()] {
    started->wait();
    token.request_stop();
  });
  const FitResult result = trainer.fit(std::make_shared<Slope>(), data);
  stopper.join();
  EXPECT_EQ(result.status, FitStatus::stopped);
  EXPECT_GE(result.global_step, 1);
}

TEST(Callback, WhatItThrowsReachesTheCaller) {
  class Thrower : public Callback {
   public:
    void on_epoch_end(Trainer&, Module&, const Record&) override { throw std::logic_error("enough"); }
  };
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 2, .callbacks = {std::make_shared<Thrower>()}});
  EXPECT_THROW(trainer.fit(std::make_shared<Slope>(), data), std::logic_error);
}

}  // namespace
}  // namespace kindling
