#include "kindling/training/callback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "kindling/base/error.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Notes the events, one word each.
class Diary : public Callback, public Logger {
 public:
  void on_fit_start(Trainer& trainer, Module&) override {
    note("fit_start " + std::to_string(trainer.progress().num_train_batches));
  }
  void on_train_epoch_start(Trainer& trainer, Module& model) override {
    note("epoch_start " + std::to_string(trainer.progress().epoch) + mode(model));
  }
  void on_before_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
    note("before_step " + std::to_string(optimizer.gradients().size()));
    weight_ = optimizer.parameters()[0].detach().clone();
  }
  void on_after_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
    note("after_step " + std::to_string(optimizer.gradients().size()));
    EXPECT_FALSE(same(weight_, optimizer.parameters()[0].detach()));
  }
  void on_validation_start(Trainer&, Module& model) override { note("validation" + mode(model)); }
  void on_validation_end(Trainer&, Module& model) override { note("validation_end" + mode(model)); }
  void on_epoch_record(Trainer&, Module&, Record& record) override {
    note("epoch_record " + std::to_string(record.epoch));
  }
  void on_exception(Trainer&, Module&, const std::exception& error) override {
    note(std::string("exception ") + error.what());
  }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    note("batch_end " + std::to_string(trainer.progress().batch) + "/" +
         std::to_string(trainer.progress().global_step));
  }
  void on_epoch_end(Trainer& trainer, Module&, const Record& record) override {
    note("epoch_end " + std::to_string(trainer.progress().epoch) + " " + std::to_string(record.epoch));
  }
  void on_fit_end(Trainer&, Module&, const FitResult& result) override {
    note("fit_end " + std::to_string(result.progress.epoch) +
         (result.status == FitStatus::failed ? " failed" : ""));
  }
  void write(const Record& record) override { note("record " + std::to_string(record.epoch)); }
  void finish() override { note("finish"); }

  std::vector<std::string> notes;

 private:
  static std::string mode(const Module& model) { return model.is_training() ? " train" : " eval"; }
  void note(std::string text) { notes.push_back(std::move(text)); }

  at::Tensor weight_;
};

TEST(Callback, IsCalledInOrder) {
  const auto diary = std::make_shared<Diary>();
  TensorData data = ramp(3, 2, 2);
  Trainer({.max_epochs = 2, .callbacks = {diary}, .loggers = {diary}}).fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(diary->notes, (std::vector<std::string>{"fit_start 2",
                                                    "validation eval",
                                                    "validation_end eval",  // the sanity check
                                                    "epoch_start 0 train",
                                                    "before_step 1",
                                                    "after_step 1",
                                                    "batch_end 1/1",
                                                    "before_step 1",
                                                    "after_step 1",
                                                    "batch_end 2/2",
                                                    "validation eval",
                                                    "validation_end eval",
                                                    "epoch_record 1",
                                                    "record 1",
                                                    "epoch_end 1 1",
                                                    "epoch_start 1 train",
                                                    "before_step 1",
                                                    "after_step 1",
                                                    "batch_end 1/3",
                                                    "before_step 1",
                                                    "after_step 1",
                                                    "batch_end 2/4",
                                                    "validation eval",
                                                    "validation_end eval",
                                                    "epoch_record 2",
                                                    "record 2",
                                                    "epoch_end 2 2",
                                                    "finish",
                                                    "fit_end 2"}));
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
  EXPECT_EQ(result.progress.global_step, 7);
  EXPECT_EQ(result.reason, FitReason::requested);
  EXPECT_EQ(result.progress, (Progress{.epoch = 1, .batch = 2, .global_step = 7}));
  EXPECT_EQ(model->num_val_batches, 2);    // after the first epoch only
  ASSERT_EQ(logger->records().size(), 1);  // the epoch that was cut has no record
  EXPECT_EQ(logger->records()[0].global_step, 5);
  EXPECT_EQ(result.metrics.at("val_loss"), *logger->records()[0].find("val_loss"));
}

TEST(RequestStop, EndsAValidationAfterTheBatch) {
  class StopInValidation : public Slope {
   public:
    void validation_step(const Batch& batch) override {
      Slope::validation_step(batch);
      if (num_val_batches == 2) token.request_stop(FitReason::early_stop);
    }
    StopToken token;
  };
  class EpochEnds : public Callback {
   public:
    void on_epoch_end(Trainer&, Module&, const Record&) override { ++num; }
    int num = 0;
  };
  const auto model = std::make_shared<StopInValidation>();
  const auto ends = std::make_shared<EpochEnds>();
  TensorData data = ramp(9, 8, 2);
  Trainer trainer({.max_epochs = 5, .num_sanity_val_steps = 0, .callbacks = {ends}});
  model->token = trainer.stop_token();
  const FitResult result = trainer.fit(model, data);
  EXPECT_EQ(result.reason, FitReason::early_stop);
  EXPECT_EQ(result.status, FitStatus::stopped);
  EXPECT_EQ(model->num_val_batches, 2);
  EXPECT_EQ(result.progress,
            (Progress{.epoch = 0, .batch = 5, .global_step = 5, .phase = Phase::validation}));
  EXPECT_EQ(ends->num, 0);
  EXPECT_TRUE(result.metrics.empty());
}

TEST(RequestStop, FromTheEndOfAnEpochKeepsItsRecord) {
  class StopAfterAnEpoch : public Callback {
   public:
    void on_epoch_end(Trainer& trainer, Module&, const Record&) override { trainer.request_stop(); }
  };
  TensorData data = ramp(4, 2, 2);
  const FitResult result = Trainer({.max_epochs = 5, .callbacks = {std::make_shared<StopAfterAnEpoch>()}})
                               .fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(result.progress, (Progress{.epoch = 1, .batch = 0, .global_step = 2}));
  EXPECT_TRUE(result.metrics.contains("val_loss"));
}

TEST(RequestStop, HoldsForOneFit) {
  TensorData data = ramp(9, 0, 2);
  const auto model = std::make_shared<Slope>();
  Trainer trainer({.max_epochs = 1});
  trainer.request_stop();  // before the fit: it ends before its first step
  EXPECT_EQ(trainer.fit(model, data).progress.global_step, 0);
  const FitResult second = trainer.fit(model, data);
  EXPECT_EQ(second.status, FitStatus::finished);
  EXPECT_EQ(second.progress.global_step, 5);
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
  EXPECT_EQ(trainer.fit(model, data).progress.global_step, 2);
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
  EXPECT_GE(result.progress.global_step, 1);
}

TEST(Callback, IsNotifiedOfAnErrorAndOfTheEnd) {
  class Thrower : public Slope {
   public:
    at::Tensor training_step(const Batch& batch) override {
      if (trainer().global_step() == 1) throw std::logic_error("enough");
      return Slope::training_step(batch);
    }
  };
  const auto diary = std::make_shared<Diary>();
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 2, .callbacks = {diary}, .loggers = {diary}});
  EXPECT_THROW(trainer.fit(std::make_shared<Thrower>(), data), std::logic_error);
  EXPECT_EQ(diary->notes,
            (std::vector<std::string>{"fit_start 2", "epoch_start 0 train", "before_step 1", "after_step 1",
                                      "batch_end 1/1", "exception enough", "finish", "fit_end 0 failed"}));
}

// Notes its name at the end of a fit, and may throw there.
class NotesEnd : public Callback, public Logger {
 public:
  NotesEnd(std::vector<std::string>& notes, std::string name, bool throws = false)
      : notes_(notes), name_(std::move(name)), throws_(throws) {}
  void on_fit_end(Trainer&, Module&, const FitResult&) override {
    notes_.push_back(name_);
    if (throws_) throw std::runtime_error(name_);
  }
  void write(const Record&) override {}
  void finish() override { notes_.push_back("finish " + name_); }

 private:
  std::vector<std::string>& notes_;
  std::string name_;
  bool throws_;
};

TEST(Callback, IsToldTheEndOnceEvenIfItThrowsThere) {
  std::vector<std::string> notes;
  const auto first = std::make_shared<NotesEnd>(notes, "first"),
             second = std::make_shared<NotesEnd>(notes, "second", /*throws=*/true),
             third = std::make_shared<NotesEnd>(notes, "third");
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 1, .callbacks = {first, second, third}, .loggers = {first}});
  for (int again = 0; again < 2; ++again) {
    notes.clear();
    EXPECT_EQ(error_text<std::runtime_error>([&] { trainer.fit(std::make_shared<Slope>(), data); }),
              "second");
    EXPECT_EQ(notes, (std::vector<std::string>{"finish first", "first", "second", "third"}));
  }
}

TEST(Callback, ErrorAtTheEndDoesNotHideTheFirst) {
  class Worse : public Callback, public Logger {
   public:
    void on_train_batch_end(Trainer&, Module&) override { throw std::logic_error("the first"); }
    void on_exception(Trainer&, Module&, const std::exception&) override {
      throw std::runtime_error("second");
    }
    void on_fit_end(Trainer&, Module&, const FitResult&) override { throw std::runtime_error("third"); }
    void write(const Record&) override {}
    void finish() override { throw std::runtime_error("fourth"); }
  };
  const auto worse = std::make_shared<Worse>();
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 2, .callbacks = {worse}, .loggers = {worse}});
  EXPECT_EQ(error_text<std::logic_error>([&] { trainer.fit(std::make_shared<Slope>(), data); }), "the first");
}

TEST(Callback, MayAddToTheRecordBeforeTheLoggersHaveIt) {
  class Perplexity : public Callback {
   public:
    void on_epoch_record(Trainer&, Module&, Record& record) override {
      if (const double* loss = record.find("val_loss"))
        record.values.emplace_back("perplexity", std::exp(*loss));
    }
  };
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(4, 2, 2);
  const FitResult result =
      Trainer({.max_epochs = 1, .callbacks = {std::make_shared<Perplexity>()}, .loggers = {logger}})
          .fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(value_of(logger->records().at(0), "perplexity"),
            std::exp(value_of(logger->records()[0], "val_loss")));
  EXPECT_TRUE(result.metrics.contains("perplexity"));
}

TEST(Callback, FindsModelAndDataInTheTrainer) {
  class Looker : public Callback {
   public:
    void on_train_epoch_start(Trainer& trainer, Module& model) override {
      EXPECT_EQ(trainer.model().get(), &model);
      data = trainer.data();
    }
    DataModule* data = nullptr;
  };
  const auto looker = std::make_shared<Looker>();
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 1, .callbacks = {looker}});
  trainer.fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(looker->data, &data);
  EXPECT_EQ(trainer.data(), nullptr) << "borrowed for the fit";
}

TEST(Callback, MayNotTrainWithTheTrainerThatCallsIt) {
  class Nested : public Callback {
   public:
    explicit Nested(std::function<void(Trainer&)> call) : call_(std::move(call)) {}
    void on_train_batch_end(Trainer& trainer, Module&) override { call_(trainer); }

   private:
    std::function<void(Trainer&)> call_;
  };
  TensorData data = ramp(4, 0, 2);
  const auto model = std::make_shared<Slope>();
  const Batch batch{at::ones({1, 1}), at::ones({1, 1})};
  const std::vector<std::function<void(Trainer&)>> calls{
      [&](Trainer& t) { t.fit(model, data); },       [&](Trainer& t) { t.prepare_data(data); },
      [&](Trainer& t) { t.prepare_model(model); },   [&](Trainer& t) { t.fit_epoch(); },
      [&](Trainer& t) { t.train_step(batch); },      [&](Trainer& t) { t.finish_epoch(); },
      [&](Trainer& t) { t.train_batches().begin(); }};
  for (const auto& call : calls) {
    Trainer trainer({.max_epochs = 1, .callbacks = {std::make_shared<Nested>(call)}});
    const std::string text = error_text<Error>([&] { trainer.fit(model, data); });
    EXPECT_NE(text.find("it was called from a callback or step of the same trainer"), std::string::npos)
        << text;
    trainer.prepare_model(model);  // usable again
  }
}

TEST(Callback, ExceptionReachesTheCaller) {
  class Thrower : public Callback {
   public:
    void on_epoch_end(Trainer&, Module&, const Record&) override { throw std::logic_error("enough"); }
  };
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 2, .callbacks = {std::make_shared<Thrower>()}});
  EXPECT_THROW(trainer.fit(std::make_shared<Slope>(), data), std::logic_error);
}

// Notes the status with which it is finalized, and calls of the older function.
class NotesStatus : public Logger {
 public:
  void write(const Record&) override {}
  void finish() override { notes.push_back(-1); }
  void finalize(FitStatus status) override {
    notes.push_back(static_cast<int>(status));
    if (calls_finish) Logger::finalize(status);
  }
  bool calls_finish = false;
  std::vector<int> notes;
};

TEST(Logger, IsFinalizedOnceWithTheStatusOfTheFit) {
  class Ends : public Callback {
   public:
    explicit Ends(FitStatus status) : status_(status) {}
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (status_ == FitStatus::stopped) trainer.request_stop();
      if (status_ == FitStatus::failed) throw std::runtime_error("thrown");
    }

   private:
    FitStatus status_;
  };
  TensorData data = ramp(4, 0, 2);
  for (const FitStatus status : {FitStatus::finished, FitStatus::stopped, FitStatus::failed}) {
    const auto logger = std::make_shared<NotesStatus>();
    Trainer trainer({.max_epochs = 1, .callbacks = {std::make_shared<Ends>(status)}, .loggers = {logger}});
    try {
      trainer.fit(std::make_shared<Slope>(), data);
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(logger->notes, (std::vector<int>{static_cast<int>(status)}));
  }
}

TEST(Logger, IsFinalizedAsFinishedAfterAnEarlyStop) {
  class StopsEarly : public Callback {
   public:
    void on_train_batch_end(Trainer& trainer, Module&) override {
      trainer.request_stop(FitReason::early_stop);
    }
  };
  TensorData data = ramp(4, 0, 2);
  const auto logger = std::make_shared<NotesStatus>();
  Trainer trainer({.max_epochs = 1, .callbacks = {std::make_shared<StopsEarly>()}, .loggers = {logger}});
  EXPECT_EQ(trainer.fit(std::make_shared<Slope>(), data).status, FitStatus::stopped);
  EXPECT_EQ(logger->notes, (std::vector<int>{static_cast<int>(FitStatus::finished)}));
}

TEST(Logger, CallsFinishUnlessItOverridesFinalize) {
  NotesStatus logger;
  logger.calls_finish = true;
  logger.finalize(FitStatus::diverged);
  EXPECT_EQ(logger.notes, (std::vector<int>{2, -1}));
}

}  // namespace
}  // namespace kindling
