// Several callbacks, and what one of them leaves behind when it throws.
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

using Notes = std::vector<std::pair<std::string, std::string>>;  // who, what

class Witness : public Callback {
 public:
  Witness(std::string name, Notes& notes) : name_(std::move(name)), notes_(notes) {}
  void on_fit_start(Trainer&, Module&) override { note("fit start"); }
  void on_train_epoch_start(Trainer&, Module&) override { note("epoch start"); }
  void on_before_optimizer_step(Trainer&, Module&, Optimizer&) override { note("before step"); }
  void on_after_optimizer_step(Trainer&, Module&, Optimizer&) override { note("after step"); }
  void on_train_batch_end(Trainer&, Module&) override { note("batch end"); }
  void on_validation_start(Trainer&, Module&) override { note("validation"); }
  void on_validation_end(Trainer&, Module&) override { note("validation end"); }
  void on_epoch_record(Trainer&, Module&, Record& record) override {
    note("record " + std::to_string(record.values.size()));
    record.values.emplace_back(name_, 1);
  }
  void on_epoch_end(Trainer&, Module&, const Record&) override {
    note("epoch end");
    if (throws) throw std::logic_error("enough");
  }
  void on_exception(Trainer&, Module&, const std::exception&) override { note("exception"); }
  void on_fit_end(Trainer&, Module&, const FitResult&) override { note("fit end"); }

  bool throws = false;

 private:
  void note(std::string what) { notes_.emplace_back(name_, std::move(what)); }

  std::string name_;
  Notes& notes_;
};

void expect_pairs(const Notes& notes, const std::vector<std::string>& moments) {
  Notes expected;
  for (const std::string& moment : moments) {
    const bool is_record = moment == "record";
    expected.emplace_back("first", is_record ? "record 11" : moment);
    expected.emplace_back("second", is_record ? "record 12" : moment);  // sees what the first has added
  }
  EXPECT_EQ(notes, expected);
}

TEST(CallbackList, IsCalledInOrderAtEachEvent) {
  Notes notes;
  TensorData data = ramp(2, 2, 2);
  Trainer(
      {.max_epochs = 1,
       .num_sanity_val_steps = 0,
       .callbacks = {std::make_shared<Witness>("first", notes), std::make_shared<Witness>("second", notes)}})
      .fit(std::make_shared<Slope>(), data);
  expect_pairs(notes, {"fit start", "epoch start", "before step", "after step", "batch end", "validation",
                       "validation end", "record", "epoch end", "fit end"});
}

TEST(CallbackList, IsCalledInTheSameOrderAfterAnError) {
  Notes notes;
  const auto first = std::make_shared<Witness>("first", notes),
             second = std::make_shared<Witness>("second", notes);
  second->throws = true;
  TensorData data = ramp(2, 0, 2);
  Trainer trainer({.max_epochs = 1, .callbacks = {first, second}});
  EXPECT_THROW(trainer.fit(std::make_shared<Slope>(), data), std::logic_error);
  const Notes after(notes.end() - 4, notes.end());
  EXPECT_EQ(
      after,
      (Notes{{"first", "exception"}, {"second", "exception"}, {"first", "fit end"}, {"second", "fit end"}}));
}

// Throws at one moment of the second epoch.
class ThrowsOnce : public Callback {
 public:
  explicit ThrowsOnce(std::string moment) : moment_(std::move(moment)) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().batch == 2) throw_at("batch", trainer);
  }
  void on_validation_end(Trainer& trainer, Module&) override { throw_at("validation", trainer); }
  void on_epoch_record(Trainer& trainer, Module&, Record& record) override {
    if (record.epoch == 2) throw_at("record", trainer, 2);
  }

 private:
  void throw_at(const char* moment, const Trainer& trainer, std::int64_t epoch = 1) {
    if (moment_ != moment || trainer.progress().epoch != epoch) return;
    moment_.clear();
    throw std::logic_error("enough");
  }
  std::string moment_;
};

TEST(CallbackThatThrows, LeavesTheTrainerLikeANewOne) {
  const auto data = [] { return ramp(7, 4, 2); };
  const auto expected = std::make_shared<MemoryLogger>();
  TrainerOptions options{.max_epochs = 2, .log_every_n_steps = 1, .loggers = {expected}};
  TensorData of_new = data();
  const auto model_of_new = std::make_shared<Slope>();
  const FitResult result = Trainer(options).fit(model_of_new, of_new);
  for (const char* moment : {"batch", "validation", "record"}) {
    const auto logger = std::make_shared<MemoryLogger>();
    options.loggers = {logger};
    options.callbacks = {std::make_shared<ThrowsOnce>(moment)};
    Trainer trainer(options);
    TensorData first = data(), second = data();
    const auto model = std::make_shared<Slope>();
    EXPECT_THROW(trainer.fit(model, first), std::logic_error) << moment;
    EXPECT_TRUE(model->is_training());
    EXPECT_TRUE(at::GradMode::is_enabled());
    const std::size_t before = logger->records().size();
    const auto other = std::make_shared<Slope>();
    const FitResult again = trainer.fit(other, second);
    EXPECT_EQ(again.status, FitStatus::finished);
    EXPECT_EQ(again.progress, result.progress);
    EXPECT_TRUE(same(other->weight, model_of_new->weight)) << moment;
    ASSERT_EQ(logger->records().size() - before, expected->records().size()) << moment;
    for (std::size_t i = 0; i < expected->records().size(); ++i)
      EXPECT_EQ(numbers_of(logger->records()[before + i]), numbers_of(expected->records()[i])) << moment << i;
  }
}

}  // namespace
}  // namespace kindling
