#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/loggers/memory_logger.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/update_bn.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/recurrent_fit.h"

namespace kindling {
namespace {

constexpr std::int64_t kWindows = 20;
constexpr std::int64_t kFirstWindows = 6;  // what most tests take of an epoch

// The hidden state after each step.
struct Hiddens : Callback {
  void on_train_batch_end(Trainer&, Module& model) override {
    const auto& carried = dynamic_cast<Predictor&>(model).state->carried()[0].tensors;
    seen.push_back(carried.empty() ? at::Tensor() : carried[0].cpu());
  }
  std::vector<at::Tensor> seen;
};

class RecurrentTraining : public OnDevice {
 protected:
  // cuDNN takes TF32 by default, as it does in Python; the numbers here come from a CPU.
  RecurrentTraining() { at::globalContext().setAllowTF32CuDNN(false); }
  ~RecurrentTraining() override { at::globalContext().setAllowTF32CuDNN(true); }
  TrainerOptions options(std::vector<std::shared_ptr<Callback>> callbacks = {}) const {
    return {.max_epochs = 2,
            .num_gpus = num_gpus_wanted(),
            .limit_train_batches = kFirstWindows,
            .log_every_n_steps = 1,
            .optimizer = recurrent_rule(),
            .callbacks = std::move(callbacks),
            .loggers = {logger_}};
  }
  // The model after two epochs.
  std::shared_ptr<Predictor> fit(std::vector<std::shared_ptr<Callback>> callbacks = {},
                                 bool validates = false) {
    const auto model = std::make_shared<Predictor>();
    WindowData data(validates);
    Trainer(options(std::move(callbacks))).fit(model, data);
    return model;
  }
  static void expect_same_weights(const Predictor& actual, const Predictor& expected) {
    for (const auto& item : expected.named_parameters())
      EXPECT_TRUE(same(actual.named_parameters()[item.key()], item.value())) << item.key();
  }
  std::vector<double> losses() const {
    std::vector<double> found;
    for (const Record& record : logger_->records())
      if (const double* loss = record.find("train_loss_step")) found.push_back(*loss);
    return found;
  }

  std::shared_ptr<MemoryLogger> logger_ = std::make_shared<MemoryLogger>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(RecurrentTraining);

// Sums in another order than Python's cost the last of the 7 digits of a float; cuDNN's own functions and 40
// steps cost one more.
double python_tolerance(Device device) { return device.is_cuda() ? 1e-5 : 1e-6; }

TEST_P(RecurrentTraining, MatchesPythonWithACarriedState) {
  const auto hiddens = std::make_shared<Hiddens>();
  const auto model = std::make_shared<Predictor>();
  WindowData data;
  TrainerOptions all = options({hiddens});
  all.limit_train_batches.reset();
  Trainer(all).fit(model, data);
  const at::Tensor expected_losses = recurrent_number("carried.losses");
  ASSERT_EQ(losses().size(), 2 * kWindows);
  EXPECT_TRUE(close(at::tensor(losses(), at::kFloat), expected_losses, python_tolerance(device_)));
  EXPECT_TRUE(close(at::stack(hiddens->seen), recurrent_number("carried.hidden"), python_tolerance(device_)));
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(close(item.value(), recurrent_number("carried." + item.key()), python_tolerance(device_)))
        << item.key();
  EXPECT_FALSE(model->state->hidden(3).defined()) << "an epoch's end resets it";
}

TEST_P(RecurrentTraining, MatchesPythonOnPackedSequences) {
  const auto model = std::make_shared<SignPredictor>();
  SignData data;
  TrainerOptions five = options();
  five.max_epochs = 5;
  Trainer(five).fit(model, data);
  EXPECT_TRUE(
      close(at::tensor(losses(), at::kFloat), recurrent_number("packed.losses"), python_tolerance(device_)));
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(close(item.value(), recurrent_number("packed." + item.key()), python_tolerance(device_)))
        << item.key();
}

// After any kind of evaluation, training continues with its own hidden state.
TEST_P(RecurrentTraining, IsUnaffectedByEvaluations) {
  struct Curious : Callback {
    void on_train_batch_end(Trainer& trainer, Module& model) override {
      WindowData data(/*validates=*/true);
      if (trainer.progress().global_step % 5 == 3) {
        losses.push_back(trainer.validate(trainer.model(), data).at("val_loss"));
        update_bn(trainer, model, data);
        model.eval();  // by hand
        const at::NoGradGuard no_grad;
        model.forward(at::ones({1, 3, 2}, at::TensorOptions(trainer.device())));
        model.forward(at::ones({1, 3, 2}, at::TensorOptions(trainer.device())));
        dynamic_cast<Predictor&>(model).state->reset_state();
        model.train();
      }
    }
    std::vector<double> losses;
  };
  const auto alone = fit();
  const auto curious = std::make_shared<Curious>();
  expect_same_weights(*fit({curious}, /*validates=*/true), *alone);
  ASSERT_EQ(curious->losses.size(), 2u);
}

// Statistics are computed in training mode.
TEST_P(RecurrentTraining, IsUnaffectedByUpdateBn) {
  struct Normed : Predictor {
    at::Tensor forward(const at::Tensor& x) override {
      const at::Tensor hidden = state->hidden(x.size(0));
      has_begun_with.push_back(hidden.defined());
      const auto [outputs, next] = gru->forward(x, hidden);
      state->carry(next);
      return head->forward(norm->forward(outputs.transpose(1, 2)).transpose(1, 2));
    }
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
    std::vector<bool> has_begun_with;
  };
  struct Computing : Callback {
    void on_train_batch_end(Trainer& trainer, Module& model) override {
      if (trainer.progress().global_step != 3) return;
      auto& normed = dynamic_cast<Normed&>(model);
      const at::Tensor before = normed.state->hidden(4);
      normed.has_begun_with.clear();
      update_bn(trainer, model, *trainer.data());
      EXPECT_FALSE(normed.has_begun_with.at(0));
      EXPECT_TRUE(normed.has_begun_with.at(1));
      EXPECT_TRUE(normed.state->hidden(4).is_same(before));
      ++num_calls;
    }
    int num_calls = 0;
  };
  const auto computing = std::make_shared<Computing>();
  WindowData data;
  Trainer(options({computing})).fit(std::make_shared<Normed>(), data);
  EXPECT_EQ(computing->num_calls, 1);
}

// Every evaluation begins without a state and carries its own, from batch to batch.
TEST_P(RecurrentTraining, EvaluationsCarryTheirOwnState) {
  const auto model = std::make_shared<Predictor>();
  WindowData data(/*validates=*/true);
  Trainer trainer(options());
  const double loss = trainer.validate(model, data).at("val_loss");
  EXPECT_EQ(trainer.validate(model, data).at("val_loss"), loss);
  {
    model->eval();  // and leaves alone what one evaluates by hand
    const at::NoGradGuard no_grad;
    model->forward(at::ones({2, 3, 2}, at::TensorOptions(trainer.device())));
    const at::Tensor by_hand = model->state->hidden(2);
    EXPECT_EQ(trainer.validate(model, data).at("val_loss"), loss);
    EXPECT_TRUE(model->state->hidden(2).is_same(by_hand));
    model->state->reset_state();
  }

  // Windows of 16 steps of rows 0 and 1, then of rows 2 and 3, which start from scratch by
  // reset_every_n_batches.
  const auto eight = std::make_shared<Predictor>("initial.", CarriedStateOptions{.reset_every_n_batches = 8});
  double expected = 0;
  for (const std::int64_t row : {0, 2}) {
    const EvaluationGuard evaluation(*model);
    const at::Tensor x = recurrent_number("series").narrow(0, row, 2),
                     y = recurrent_number("targets").narrow(0, row, 2);
    const at::Tensor errors = (model->forward(move_to(x, device_)).cpu() - y).square();
    for (int w = 0; w < 8; ++w)
      expected += errors.narrow(1, 16 * w, w < 7 ? 16 : 8).mean().item<double>() / 16;
  }
  EXPECT_NEAR(trainer.validate(eight, data).at("val_loss"), expected, 1e-6) << "float sums of 32 numbers";
}

TEST_P(RecurrentTraining, ResumesBitIdenticallyFromEveryStep) {
  struct Keeper : Callback {
    void on_train_batch_end(Trainer& trainer, Module&) override { states.push_back(kept(trainer)); }
    void on_validation_end(Trainer& trainer, Module&) override {
      if (trainer.progress().global_step > 0) states.push_back(kept(trainer));
    }
    static StateDict kept(Trainer& trainer) { return copy_to(trainer.state_dict(), cpu()); }
    std::vector<StateDict> states;
  };
  const auto keeper = std::make_shared<Keeper>();
  const auto whole = fit({keeper}, /*validates=*/true);
  ASSERT_EQ(keeper->states.size(), 2 * (kFirstWindows + 1));
  EXPECT_NE(keeper->states[4].find("carried.state.training.0"), nullptr);
  const Scratch scratch(memory_folder());
  for (std::size_t i = 0; i < keeper->states.size(); i += device_.is_cpu() ? 1 : 4) {
    save_checkpoint(keeper->states[i], scratch / "state");
    const auto rest = std::make_shared<Predictor>();
    rest->state->carry(at::ones({2, 9, 8}));  // of something else
    WindowData data(/*validates=*/true);
    Trainer(options()).fit(rest, data, {.resume = scratch / "state"});
    expect_same_weights(*rest, *whole);
    if (HasFailure()) FAIL() << "from place " << i;
  }
  // Without the state another training.
  std::erase_if(keeper->states[4].tensors,
                [](const auto& item) { return item.first.starts_with("carried."); });
  save_checkpoint(keeper->states[4], scratch / "state");
  const auto without = std::make_shared<Predictor>();
  WindowData data(/*validates=*/true);
  Trainer(options()).fit(without, data, {.resume = scratch / "state"});
  EXPECT_FALSE(same(without->head->weight, whole->head->weight));
  // A state for which the model has no place is refused.
  struct Stateless : Predictor {
    Stateless() { unregister_module("state"); }
  };
  save_checkpoint(keeper->states[5], scratch / "state");
  const std::string refused = error_text<CheckpointError>(
      [&] { Trainer(options()).fit(std::make_shared<Stateless>(), data, {.resume = scratch / "state"}); });
  EXPECT_NE(refused.find("state.training.0"), std::string::npos) << refused;
}

TEST_P(RecurrentTraining, RefusesABatchOfAnotherSize) {
  const auto model = std::make_shared<Predictor>();
  struct Uneven : WindowData {
    std::shared_ptr<DataLoader> train_dataloader() override {
      return std::make_shared<DataLoader>(
          std::make_shared<TensorDataset>(std::vector{recurrent_number("series").narrow(1, 0, 6),
                                                      recurrent_number("targets").narrow(1, 0, 6)}),
          DataLoaderOptions{.batch_size = 3});
    }
  } data;
  const std::string error = error_text<DataError>([&] { Trainer(options()).fit(model, data); });
  EXPECT_NE(error.find("a batch of 1 samples after one of 3"), std::string::npos) << error;
  EXPECT_NE(error.find("drop_last"), std::string::npos) << error;
  WindowData even;
  Trainer(options()).fit(model, even);  // a new training begins without what that one has left
}

// A poisoned window is skipped, and those after it are not.
TEST_P(RecurrentTraining, SkipsANonfiniteStep) {
  struct Poisoned : WindowData {
    Batch on_after_batch_transfer(Batch batch) override {
      if (++count == 5) batch.tensors()[0] = batch[0] * std::nan("");
      return batch;
    }
    int count = 0;
  } data;
  const auto model = std::make_shared<Predictor>();
  TrainerOptions skipping = options();
  skipping.on_nonfinite = "skip";
  const FitResult result = Trainer(skipping).fit(model, data);
  EXPECT_EQ(result.status, FitStatus::finished);
  double skipped = 0;
  for (const Record& record : logger_->records())
    if (const double* steps = record.find("skipped_steps")) skipped += *steps;
  EXPECT_EQ(skipped, 1);
}

// Each evaluation of a batch begins with the same state.
TEST_P(RecurrentTraining, IsOneStepForAnOptimizerThatEvaluatesSeveralTimes) {
  struct Noting : Predictor {
    at::Tensor forward(const at::Tensor& x) override {
      const at::Tensor hidden = state->hidden(x.size(0));
      begun_with.push_back(hidden.defined() ? hidden.cpu() : at::zeros({2, 4, 8}));
      return Predictor::forward(x);
    }
    std::vector<at::Tensor> begun_with;
  };
  const auto model = std::make_shared<Noting>();
  TrainerOptions two = options();
  two.max_steps = 2;
  two.num_sanity_val_steps = 0;
  two.optimizer = [](ParameterGroups parameters) {
    return std::make_unique<Lbfgs>(std::move(parameters), LbfgsOptions{.lr = 0.1, .max_iter = 4});
  };
  WindowData data;
  Trainer(two).fit(model, data);
  const std::size_t half = model->begun_with.size() / 2;
  ASSERT_GE(half, 2u);
  for (std::size_t i = 0; i < 2 * half; ++i)
    EXPECT_TRUE(same(model->begun_with[i], model->begun_with[i < half ? 0 : half])) << i;
  EXPECT_GT(model->begun_with[half].abs().sum().item<double>(), 0);
}

TEST_P(RecurrentTraining, IsTheSameInACustomLoop) {
  const auto expected = fit();
  const auto model = std::make_shared<Predictor>();
  Trainer trainer(options());
  trainer.prepare_model(model);
  const auto loader = WindowData::loader(4, 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::int64_t number = 0;
    for (const Batch& batch : *loader)
      if (number++ < kFirstWindows) trainer.train_step(trainer.prepare_batch(batch));
    trainer.finish_epoch();
  }
  expect_same_weights(*model, *expected);
}

}  // namespace
}  // namespace kindling
