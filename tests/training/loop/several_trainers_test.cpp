// Several trainers in one process: on separate threads, one after the other, at the same time, and with
// inference between steps.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <latch>
#include <stdexcept>
#include <thread>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// No random operator: what it learns depends on its first weights and on the order of the data alone.
class Parabola : public Module {
 public:
  explicit Parabola(std::uint64_t seed) {
    at::manual_seed(seed);
    net = register_module(
        "net", torch::nn::Sequential{torch::nn::Linear(1, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1)});
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    log("largest", (y - labels).detach().abs().max());
    return (y - labels).square().mean();
  }
  torch::nn::Sequential net{nullptr};
};

// 24 samples in batches of 4, in an order of their own.
TensorData shuffled(std::int64_t seed) {
  const at::Tensor x = at::linspace(-1, 1, 24).unsqueeze(1);
  return {{x, x.square()}, {x, x.square()}, {.batch_size = 4, .shuffle = true, .seed = seed}};
}

// One numbered run: its model, its data, its records.
struct NumberedRun {
  explicit NumberedRun(std::int64_t number, std::int64_t num_gpus)
      : model(std::make_shared<Parabola>(static_cast<std::uint64_t>(number))),
        data(shuffled(number)),
        options{.max_epochs = 3,
                .num_gpus = num_gpus,
                .log_every_n_steps = 1,
                .optimizer = sgd(0.1),
                .loggers = {logger}} {}

  void fit() { Trainer(options).fit(model, data); }
  // The losses and metrics by step and epoch, without times and counts.
  std::vector<double> numbers() const {
    std::vector<double> numbers;
    for (const Record& record : logger->records())
      for (const char* name : {"train_loss_step", "train_loss", "largest", "val_loss"})
        if (const double* value = record.find(name)) numbers.push_back(*value);
    return numbers;
  }

  std::shared_ptr<Parabola> model;
  TensorData data;
  std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
  TrainerOptions options;
};

constexpr std::size_t kNumbersOfARun = 3 * 6 + 3 * 3;  // a loss per step; three means per epoch

class SeveralTrainers : public OnDevice {
 protected:
  NumberedRun run(std::int64_t number) const { return NumberedRun(number, num_gpus_wanted()); }
  std::vector<double> lone_numbers(std::int64_t number) const {
    NumberedRun lone = run(number);
    lone.fit();
    return lone.numbers();
  }
};

TEST_P(SeveralTrainers, ComputeTheSameNumbersOnAnotherThread) {
  NumberedRun moved = run(1);
  std::thread([&] { moved.fit(); }).join();
  EXPECT_EQ(moved.numbers(), lone_numbers(1));
  EXPECT_EQ(moved.numbers().size(), kNumbersOfARun);
}

TEST_P(SeveralTrainers, KeepOrderAndLogApartOneAfterTheOther) {
  NumberedRun first = run(1), second = run(2);
  Trainer one(first.options), other(second.options);
  one.fit(first.model, first.data);
  other.fit(second.model, second.data);
  EXPECT_EQ(first.numbers(), lone_numbers(1));
  EXPECT_EQ(second.numbers(), lone_numbers(2));
  EXPECT_NE(first.numbers(), second.numbers());
}

// Lets two fits take their steps in turn, whatever the scheduler does.
class InStep : public Callback {
 public:
  explicit InStep(std::barrier<>& barrier) : barrier_(barrier) {}
  void on_train_batch_end(Trainer&, Module&) override { barrier_.arrive_and_wait(); }

 private:
  std::barrier<>& barrier_;
};

TEST_P(SeveralTrainers, KeepOrderAndLogApartAtOnceOnTwoThreads) {
  NumberedRun first = run(1), second = run(2);
  std::barrier<> barrier(2);
  first.options.callbacks = second.options.callbacks = {std::make_shared<InStep>(barrier)};
  std::thread one([&] { first.fit(); }), other([&] { second.fit(); });
  one.join();
  other.join();
  EXPECT_EQ(first.numbers(), lone_numbers(1));
  EXPECT_EQ(second.numbers(), lone_numbers(2));
}

TEST_P(SeveralTrainers, KeepLogsApartInInterleavedCustomLoops) {
  Trainer one({.num_gpus = num_gpus_wanted(), .optimizer = sgd(0)}), other(one.options());
  one.prepare_model(std::make_shared<Slope>());
  other.prepare_model(std::make_shared<Slope>());
  for (int i = 1; i <= 3; ++i) {  // with weight 0 the loss is the label
    one.train_step(one.prepare_batch({at::ones({1, 1}), at::full({1, 1}, i)}));
    other.train_step(other.prepare_batch({at::ones({1, 1}), at::full({1, 1}, 10.0 * i)}));
  }
  EXPECT_EQ(one.finish_epoch().at("train_loss"), 2);
  EXPECT_EQ(other.finish_epoch().at("train_loss"), 20);
}

TEST_P(SeveralTrainers, LeaveTheDefaultGeneratorsToTheModels) {
  NumberedRun quiet = run(1);
  const auto state = [&] {
    return std::pair(at::globalContext().defaultGenerator(cpu()).get_state().clone(),
                     at::globalContext().defaultGenerator(device_).get_state().clone());
  };
  const auto before = state();
  quiet.fit();
  Trainer(quiet.options).predict(quiet.model, quiet.data);
  const auto after = state();
  EXPECT_TRUE(same(after.first, before.first));
  EXPECT_TRUE(same(after.second, before.second));
}

// Waits, in the step or validation batch of that number, until another thread has asked to stop.
class Meeting : public Slope {
 public:
  enum class Place { training, validation };
  Meeting(Place place, std::int64_t number) : place_(place), number_(number) {}

  at::Tensor training_step(const Batch& batch) override {
    if (place_ == Place::training && ++seen_ == number_) meet();
    return Slope::training_step(batch);
  }
  void validation_step(const Batch& batch) override {
    if (place_ == Place::validation && ++seen_ == number_) meet();
    Slope::validation_step(batch);
  }

  std::latch reached{1}, requested{1};

 private:
  void meet() {
    reached.count_down();
    requested.wait();
  }
  Place place_;
  std::int64_t number_, seen_ = 0;
};

class StopFromAThread : public OnDevice {
 protected:
  FitResult stopped(Meeting::Place place, std::int64_t number) {
    const auto model = std::make_shared<Meeting>(place, number);
    TensorData data = ramp(6, 4, 2);  // three steps and two validation batches an epoch
    Trainer trainer({.max_epochs = 1'000'000'000, .num_gpus = num_gpus_wanted(), .num_sanity_val_steps = 2});
    std::thread stopper([&, token = trainer.stop_token()] {
      model->reached.wait();
      token.request_stop();
      model->requested.count_down();
    });
    const FitResult result = trainer.fit(model, data);
    stopper.join();
    return result;
  }
};

TEST_P(StopFromAThread, EndsAfterTheRunningStep) {
  const FitResult result = stopped(Meeting::Place::training, 5);
  EXPECT_EQ(result.status, FitStatus::stopped);
  EXPECT_EQ(result.progress.global_step, 5);
}

TEST_P(StopFromAThread, BeginsNoStepAfterValidation) {
  const FitResult result = stopped(Meeting::Place::validation, 3);  // the first one after an epoch
  EXPECT_EQ(result.status, FitStatus::stopped);
  EXPECT_EQ(result.progress.global_step, 3);
}

TEST_P(StopFromAThread, BeginsNoStepAfterTheSanityCheck) {
  EXPECT_EQ(stopped(Meeting::Place::validation, 1).progress.global_step, 0);
}

// Has everything that inference could disturb: a random stream, running means, a layer with a mode of its
// own.
class Fragile : public Parabola {
 public:
  Fragile() : Parabola(1) {
    net->push_back(torch::nn::BatchNorm1d(1));
    net->push_back(torch::nn::Dropout(0.5));
    frozen = register_module("frozen", torch::nn::BatchNorm1d(1));
  }
  at::Tensor forward(const at::Tensor& x) override { return frozen->forward(net->forward(x)); }
  at::Tensor training_step(const Batch& batch) override {
    if (trainer().batch_index() == 0) frozen->eval();
    EXPECT_FALSE(frozen->is_training());
    return Parabola::training_step(batch);
  }
  torch::nn::BatchNorm1d frozen{nullptr};
};

using BetweenSteps = std::function<void(Trainer&, Module&, DataModule&)>;

class Between : public Callback {
 public:
  Between(BetweenSteps call, DataModule& data) : call_(std::move(call)), data_(data) {}
  void on_train_batch_end(Trainer& trainer, Module& model) override { call_(trainer, model, data_); }

 private:
  BetweenSteps call_;
  DataModule& data_;
};

class InferenceBetweenSteps : public OnDevice {
 protected:
  // Losses and logged means, then the weights in one vector.
  std::pair<std::vector<double>, at::Tensor> trained(const BetweenSteps& between) {
    NumberedRun run(1, num_gpus_wanted());
    run.model = model_ = std::make_shared<Fragile>();
    run.options.callbacks = {std::make_shared<Between>(between, run.data)};
    at::manual_seed(7);
    run.fit();
    EXPECT_EQ(run.numbers().size(), kNumbersOfARun);
    std::vector<at::Tensor> state;
    for (const auto& tensor : model_->parameters()) state.push_back(tensor.detach().flatten());
    for (const auto& tensor : model_->buffers()) state.push_back(tensor.to(at::kFloat).flatten());
    return {run.numbers(), at::cat(state)};
  }
  void expect_undisturbed(const BetweenSteps& between) {
    const auto expected = trained([](Trainer&, Module&, DataModule&) {});
    const auto disturbed = trained(between);
    EXPECT_EQ(disturbed.first, expected.first);
    EXPECT_TRUE(same(disturbed.second, expected.second));
  }
  std::shared_ptr<Fragile> model_;
};

TEST_P(InferenceBetweenSteps, ByHandLeavesTrainingBitIdentical) {
  expect_undisturbed([this](Trainer& trainer, Module& model, DataModule&) {
    const at::NoGradGuard no_grad;
    model.eval();
    EXPECT_EQ(model.forward(at::ones({3, 1}, trainer.device())).size(0), 3);
    model.train();
    model_->frozen->eval();  // by hand the modes are the caller's business
  });
}

TEST_P(InferenceBetweenSteps, ByItsTrainerLeavesTrainingBitIdentical) {
  expect_undisturbed([this](Trainer& trainer, Module&, DataModule& data) {
    EXPECT_EQ(trainer.predict(model_, data).size(0), 24);
    EXPECT_EQ(trainer.validate(model_, data).size(), 2);
  });
}

TEST_P(InferenceBetweenSteps, ByAnotherTrainerLeavesTrainingBitIdentical) {
  expect_undisturbed([this](Trainer& trainer, Module&, DataModule& data) {
    Trainer other({.num_gpus = num_gpus_wanted()});
    EXPECT_EQ(other.predict(model_, data).size(0), 24);
    EXPECT_EQ(other.validate(model_, data).size(), 2);
    EXPECT_EQ(model_->trainer().global_step(), trainer.progress().global_step);
  });
}

TEST_P(InferenceBetweenSteps, ThatThrowsLeavesTrainingBitIdentical) {
  class Broken : public TensorData {
   public:
    Broken() : TensorData(shuffled(1)) {}
    Batch on_after_batch_transfer(Batch) override { throw std::runtime_error("broken"); }
  } broken;
  expect_undisturbed([&](Trainer& trainer, Module&, DataModule&) {
    EXPECT_THROW(trainer.predict(model_, broken), std::runtime_error);
    EXPECT_TRUE(at::GradMode::is_enabled());
  });
}

// A fit that another thread holds in its first step while the test does something.
class HeldFit {
 public:
  explicit HeldFit(Trainer& trainer) : trainer_(trainer) { model->reached.wait(); }
  ~HeldFit() { end(); }
  FitResult end() {
    if (thread_.joinable()) {
      model->requested.count_down();
      thread_.join();
    }
    return result_;
  }

  const std::shared_ptr<Meeting> model = std::make_shared<Meeting>(Meeting::Place::training, 1);

 private:
  Trainer& trainer_;
  TensorData data_ = ramp(4, 0, 2);
  FitResult result_;
  std::thread thread_{[this] { result_ = trainer_.fit(model, data_); }};
};

TEST_P(SeveralTrainers, OneOnTwoThreadsIsRefused) {
  Trainer trainer({.max_epochs = 2, .num_gpus = num_gpus_wanted()});
  HeldFit held(trainer);
  TensorData data = ramp(4, 2, 2);
  const auto other = std::make_shared<Slope>();
  const auto refuses = [](const std::string& location, const auto& call) {
    EXPECT_EQ(
        error_text<Error>(call),
        location +
            ": the trainer is running Trainer::fit on another thread; expected: calls from one thread at "
            "a time; make a Trainer for each thread; stop_token() stops a fit from another thread");
  };
  refuses("Trainer::fit", [&] { trainer.fit(other, data); });
  refuses("Trainer::validate", [&] { trainer.validate(other, data); });
  refuses("Trainer::predict", [&] { trainer.predict(other, data); });
  refuses("Trainer::prepare_model", [&] { trainer.prepare_model(other); });
  refuses("Trainer::train_step", [&] { trainer.train_step({at::ones({1, 1}), at::ones({1, 1})}); });
  refuses("Trainer::state_dict", [&] { (void)trainer.state_dict(); });
  EXPECT_EQ(held.end().status, FitStatus::finished);
  EXPECT_EQ(trainer.fit(other, data).status, FitStatus::finished) << "one after the other";
}

TEST_P(SeveralTrainers, OneModelInTwoAtOnceIsRefused) {
  Trainer trainer({.max_epochs = 2, .num_gpus = num_gpus_wanted()}), second(trainer.options());
  HeldFit held(trainer);
  TensorData data = ramp(4, 2, 2);
  const auto refuses = [](const std::string& location, const auto& call) {
    EXPECT_EQ(error_text<Error>(call),
              location +
                  ": another trainer is using the model kindling::(anonymous "
                  "namespace)::Meeting, in Trainer::fit on another thread; expected: one "
                  "trainer at a time; give each trainer a model of its own");
  };
  refuses("Trainer::fit", [&] { second.fit(held.model, data); });
  refuses("Trainer::validate", [&] { second.validate(held.model, data); });
  refuses("Trainer::prepare_model", [&] { second.prepare_model(held.model); });
  EXPECT_EQ(second.fit(std::make_shared<Slope>(), data).status, FitStatus::finished) << "another model";
  EXPECT_EQ(held.end().status, FitStatus::finished);
  EXPECT_EQ(second.fit(held.model, data).status, FitStatus::finished) << "one after the other";
}

TEST_P(SeveralTrainers, AreFreeAfterAnError) {
  class Throws : public Slope {
    at::Tensor training_step(const Batch&) override { throw std::runtime_error("planted"); }
  };
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted()}), second(trainer.options());
  TensorData data = ramp(4, 2, 2);
  const auto model = std::make_shared<Throws>();
  EXPECT_THROW(trainer.fit(model, data), std::runtime_error);
  std::thread([&] {
    EXPECT_EQ(second.validate(model, data).size(), 1U);
    EXPECT_EQ(trainer.fit(std::make_shared<Slope>(), data).status, FitStatus::finished);
  }).join();
}

// Trains another model with another trainer in each of its steps, and evaluates that one there, too.
class TrainsAnother : public Slope {
 public:
  explicit TrainsAnother(TrainerOptions options) : options_(std::move(options)) {}
  at::Tensor training_step(const Batch& batch) override {
    TensorData data = ramp(4, 2, 2);
    const auto inner = std::make_shared<Slope>();
    Trainer trainer(options_);
    num_inner_steps += trainer.fit(inner, data).progress.global_step;
    EXPECT_EQ(trainer.validate(inner, data).size(), 1U);
    return Slope::training_step(batch);
  }
  std::int64_t num_inner_steps = 0;

 private:
  TrainerOptions options_;
};

TEST_P(SeveralTrainers, OneInsideAStepOfAnotherIsNoMisuse) {
  const TrainerOptions options{.max_epochs = 1, .num_gpus = num_gpus_wanted()};
  const auto model = std::make_shared<TrainsAnother>(options);
  TensorData data = ramp(4, 0, 2);
  EXPECT_EQ(Trainer(options).fit(model, data).progress.global_step, 2);
  EXPECT_EQ(model->num_inner_steps, 4);
}

KINDLING_RUN_ON_TRAINER_DEVICES(SeveralTrainers);
KINDLING_RUN_ON_TRAINER_DEVICES(StopFromAThread);
KINDLING_RUN_ON_TRAINER_DEVICES(InferenceBetweenSteps);

}  // namespace
}  // namespace kindling
