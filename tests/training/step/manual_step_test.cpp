// Models with several optimizers, which run their updates themselves.
#include "training/step/manual_step.h"

#include <ATen/Functions.h>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/metrics/metric.h"
#include "kindling/optim/clip.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/tensors/checkpoint_file.h"
#include "nn/precision.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

// The messages that are logged while it exists.
class Said {
 public:
  Said() {
    set_log_observer([this](LogLevel, const std::string& line) { text_ += line + "\n"; });
  }
  ~Said() { set_log_observer({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::vector<at::Tensor> values_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : model.parameters()) values.push_back(parameter.detach().cpu().clone());
  return values;
}

void expect_equal_values(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same(found[i], wanted[i])) << "parameter " << i;
}

class ManualSteps : public OnDevice {
 protected:
  TrainerOptions options(std::int64_t epochs = 3) const {
    return {.max_epochs = epochs, .num_gpus = num_gpus_wanted()};
  }
  // The same training by hand: whole backward passes, gradients dropped where nobody wants them.
  std::vector<at::Tensor> by_hand(double clip_val, std::int64_t every_n,
                                  const std::string& precision = "32-true") {
    const auto gan = std::make_shared<PointGan>();
    gan->to(device_);
    auto optimizers = gan->configure_named_optimizers();
    const Precision in = Precision::named(precision);
    TensorData data = gan_points();
    const auto loader = data.train_dataloader();
    GradScaler scaler(device_);
    at::Tensor found_inf;
    const auto update = [&](const std::string& name, const at::Tensor& loss) {
      Optimizer& optimizer = *optimizers.at(name);
      gan->zero_grad();
      if (in.scales_gradients) {
        loss.backward(scaler.seed(loss));
        scaler.unscale(optimizer);
        found_inf =
            found_inf.defined() ? at::maximum(found_inf, scaler.found_inf()) : scaler.found_inf().clone();
        return optimizer.step({.found_inf = scaler.found_inf()});
      }
      loss.backward();
      if (clip_val > 0) clip_grad_norm(optimizer.gradients(), clip_val);
      optimizer.step();
    };
    at::manual_seed(7);
    for (int epoch = 0; epoch < 3; ++epoch)
      for (std::int64_t b = 0; b < kGanBatches; ++b) {
        const at::Tensor real = at::linspace(1, 3, 20).unsqueeze(1).narrow(0, 4 * b, 4).to(device_);
        at::Tensor fake, of_discriminator, of_generator;
        {
          const AutocastScope autocast(in, device_);
          fake = gan->made(4);
          of_discriminator = gan->discriminator_loss(real, fake);
        }
        update("discriminator", of_discriminator);
        if (b % every_n != 0) continue;
        {
          const AutocastScope autocast(in, device_);
          of_generator = gan->generator_loss(fake);
        }
        update("generator", of_generator);
        if (in.scales_gradients) scaler.adjust(found_inf);
        found_inf.reset();
      }
    return values_of(*gan);
  }
  FitResult trained(const std::shared_ptr<PointGan>& gan, TrainerOptions with) {
    TensorData data = gan_points();
    at::manual_seed(7);
    return Trainer(std::move(with)).fit(gan, data);
  }
  std::shared_ptr<PointGan> after_steps(std::int64_t steps) { return after_steps(steps, options()); }
  std::shared_ptr<PointGan> after_steps(std::int64_t steps, TrainerOptions with) {
    const auto gan = std::make_shared<PointGan>();
    with.max_steps = steps;
    trained(gan, std::move(with));
    return gan;
  }
  std::vector<at::Tensor> by_trainer(TrainerOptions with, std::int64_t every_n = 1) {
    const auto gan = std::make_shared<PointGan>(every_n);
    TensorData data = gan_points();
    Trainer trainer(std::move(with));
    at::manual_seed(7);
    trainer.fit(gan, data);
    EXPECT_EQ(trainer.progress().global_step, 3 * kGanBatches);
    return values_of(*gan);
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(ManualSteps);

TEST_P(ManualSteps, MatchAHandWrittenLoop) {
  expect_equal_values(by_trainer(options()), by_hand(0, 1));
  expect_equal_values(by_trainer(options(), 2), by_hand(0, 2));
  TrainerOptions clipped = options();
  clipped.gradient_clip_val = 0.05;
  expect_equal_values(by_trainer(clipped), by_hand(0.05, 1));
}

// The second loss of a step sees the weights that the first update has left, not what autocast keeps of
// former ones.
TEST_P(ManualSteps, ComputeInLowPrecisionWithTheLatestWeights) {
  TrainerOptions mixed = options();
  mixed.precision = "bf16-mixed";
  expect_equal_values(by_trainer(mixed), by_hand(0, 1, "bf16-mixed"));
}

// With one scale for both losses of a step, which changes after them.
TEST_P(ManualSteps, ScaleSmallGradients) {
  TrainerOptions mixed = options();
  mixed.precision = "16-mixed";
  expect_equal_values(by_trainer(mixed), by_hand(0, 1, "16-mixed"));
}

TEST_P(ManualSteps, LogTheRateOfEachUpdate) {
  TrainerOptions with = options(1);
  const auto logger = std::make_shared<MemoryLogger>();
  with.loggers = {logger};
  with.log_every_n_steps = 1;
  with.gradient_clip_val = 1;
  TensorData data = gan_points();
  Trainer(with).fit(std::make_shared<PointGan>(2), data);
  const auto& records = logger->records();
  ASSERT_EQ(records.size(), kGanBatches + 1);
  for (std::size_t i = 0; i < kGanBatches; ++i) {
    EXPECT_FLOAT_EQ(value_of(records[i], "lr_discriminator"), 0.1);
    EXPECT_GT(value_of(records[i], "grad_norm_discriminator"), 0);
    EXPECT_NE(records[i].find("train_loss_step"), nullptr);
    EXPECT_NE(records[i].find("discriminator_step"), nullptr);
    EXPECT_EQ(records[i].find("lr_generator") != nullptr, i % 2 == 0) << i;
  }
  EXPECT_NE(records.back().find("train_loss"), nullptr);
  EXPECT_NE(records.back().find("discriminator"), nullptr);
}

TEST_P(ManualSteps, FollowTheScheduleAndNotifyCallbacks) {
  struct Watcher : Callback {
    void on_before_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
      rates.push_back(optimizer.lr());
    }
    std::vector<double> rates;
  };
  TrainerOptions with = options(1);
  const auto watcher = std::make_shared<Watcher>();
  with.callbacks = {watcher};
  with.schedule = linear_schedule({.start_factor = 1, .end_factor = 0, .total_iters = 5});
  TensorData data = gan_points();
  Trainer(with).fit(std::make_shared<PointGan>(), data);
  ASSERT_EQ(watcher->rates.size(), 2 * kGanBatches);
  for (int step = 0; step < kGanBatches; ++step) {
    EXPECT_NEAR(watcher->rates[2 * step], 0.1 * (1 - 0.2 * step), 1e-12);
    EXPECT_NEAR(watcher->rates[2 * step + 1], 0.02 * (1 - 0.2 * step), 1e-12);
  }
}

TEST_P(ManualSteps, StopAtANonfiniteLoss) {
  for (const bool in_discriminator : {true, false}) {
    const auto gan = std::make_shared<PointGan>();
    gan->poison = 4;
    gan->is_discriminator_poisoned = in_discriminator;
    const FitResult result = trained(gan, options());
    EXPECT_EQ(result.status, FitStatus::diverged);
    EXPECT_EQ(result.diverged_step, 4);
    // What came before stands: of the fourth step the update before the poisoned one.
    expect_equal_values(values_of(*gan->generator), values_of(*after_steps(3)->generator));
    expect_equal_values(values_of(*gan->discriminator),
                        values_of(*after_steps(in_discriminator ? 3 : 4)->discriminator));
  }
}

TEST_P(ManualSteps, SkipOnlyTheNonfiniteUpdate) {
  for (const std::string precision : {"32-true", "16-mixed"})
    for (const bool in_discriminator : {true, false}) {
      SCOPED_TRACE(precision);
      const auto gan = std::make_shared<PointGan>();
      gan->poison = 4;
      gan->is_discriminator_poisoned = in_discriminator;
      TrainerOptions with = options(1);
      const auto logger = std::make_shared<MemoryLogger>();
      with.loggers = {logger};
      with.max_steps = 4;
      with.precision = precision;
      with.on_nonfinite = "skip";
      trained(gan, with);
      EXPECT_TRUE(std::isfinite(value_of(logger->records().back(), "train_loss")));
      TrainerOptions clean = options(1);
      clean.precision = precision;
      const auto of_clean = std::make_shared<MemoryLogger>();
      clean.loggers = {of_clean};
      const auto before = after_steps(3, clean), after = after_steps(4, clean);
      const double* const by_the_scaler = of_clean->records().back().find("skipped_steps");
      EXPECT_EQ(value_of(logger->records().back(), "skipped_steps"), by_the_scaler ? *by_the_scaler + 1 : 1);
      const auto& skipped = in_discriminator ? gan->discriminator : gan->generator;
      const auto& skipped_before = in_discriminator ? before->discriminator : before->generator;
      expect_equal_values(values_of(*skipped), values_of(*skipped_before));
      const auto& other = in_discriminator ? gan->generator : gan->discriminator;
      const auto& other_before = in_discriminator ? before->generator : before->discriminator;
      EXPECT_FALSE(same(values_of(*other)[0], values_of(*other_before)[0]));
      for (const at::Tensor& value : values_of(*gan)) EXPECT_TRUE(value.isfinite().all().item<bool>());
    }
}

TEST_P(ManualSteps, NameTheNonfiniteLoss) {
  const Said log;
  const auto gan = std::make_shared<PointGan>();
  gan->poison = 4;
  trained(gan, options());
  EXPECT_NE(log.text().find("not finite from step 4 on"), std::string::npos) << log.text();
  EXPECT_NE(log.text().find("aten::div"), std::string::npos) << log.text();
}

TEST_P(ManualSteps, ResumeBitIdenticallyFromEveryStep) {
  // Keeps the state after each step.
  struct Keeper : Callback {
    void on_train_batch_end(Trainer& trainer, Module&) override {
      save_checkpoint(trainer.state_dict(), folder / std::to_string(++num_states));
    }
    std::filesystem::path folder;
    int num_states = 0;
  };
  const Scratch scratch(memory_folder());
  for (const std::string precision : {"32-true", "16-mixed"}) {
    TrainerOptions with = options();
    with.precision = precision;
    with.schedule = linear_schedule({.start_factor = 1, .end_factor = 0.1, .total_iters = 15});
    const auto keeper = std::make_shared<Keeper>();
    keeper->folder = scratch.folder();
    TrainerOptions kept = with;
    kept.callbacks = {keeper};
    const auto whole = std::make_shared<PointGan>(2);
    trained(whole, kept);
    ASSERT_EQ(keeper->num_states, 3 * kGanBatches);
    for (int step = 1; step <= keeper->num_states; ++step) {
      const auto rest = std::make_shared<PointGan>(2);
      TensorData data = gan_points();
      Trainer(with).fit(rest, data, {.resume = scratch / std::to_string(step)});
      expect_equal_values(values_of(*rest), values_of(*whole));
      if (HasFailure()) FAIL() << precision << " from step " << step;
    }
  }
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A model whose training_step is given.
struct Manual : PointGan {
  at::Tensor training_step(const Batch& batch) override { return step(*this, batch); }
  NamedOptimizers configure_named_optimizers() override {
    return make ? make(*this) : PointGan::configure_named_optimizers();
  }
  void run(std::string_view name, const at::Tensor& loss) { update(name, loss); }
  std::function<at::Tensor(Manual&, const Batch&)> step;
  std::function<NamedOptimizers(Manual&)> make;
};

TEST_P(ManualSteps, RefuseUpdatesThatTrainNothing) {
  const auto error = [&](auto step, auto make) {
    const auto model = std::make_shared<Manual>();
    model->step = step;
    model->make = make;
    TensorData data = gan_points();
    return error_of([&] { Trainer(options(1)).fit(model, data); });
  };
  const auto own = [](Manual& model) { return model.PointGan::configure_named_optimizers(); };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto loss_of = [](Manual& model) { return model.generator_loss(model.made(4)); };
  has(error(
          [&](Manual& model, const Batch&) {
            model.run("critic", loss_of(model));
            return loss_of(model);
          },
          own),
      "one of 'discriminator', 'generator'");
  has(error(
          [&](Manual& model, const Batch&) {
            model.run("generator", loss_of(model).detach());
            return loss_of(model);
          },
          own),
      "does not depend on any parameter");
  has(error(
          [&](Manual& model, const Batch&) {
            model.run("generator", model.made(4));
            return loss_of(model);
          },
          own),
      "a tensor of 4 elements");
  has(error(
          [&](Manual& model, const Batch&) {
            model.run("generator", loss_of(model));
            return at::Tensor();
          },
          own),
      "a scalar to log as train_loss");
  const auto update = [&](Manual& model, const Batch&) {
    model.run("generator", loss_of(model));
    return loss_of(model);
  };
  has(error(update, [](Manual&) { return NamedOptimizers(); }), "there are none");
  has(error(update,
            [](Manual&) {
              NamedOptimizers made;
              made["generator"] = nullptr;
              return made;
            }),
      "is nullptr");
  has(error(update,
            [](Manual& model) {
              NamedOptimizers made;
              made["a.b"] = std::make_unique<Adam>(ParameterGroups(model));
              return made;
            }),
      "without dots");
  has(error(update,
            [](Manual& model) {
              NamedOptimizers made;
              made["a"] = std::make_unique<Lbfgs>(ParameterGroups(model));
              return made;
            }),
      "evaluates the loss");
  const auto alone = std::make_shared<Manual>();
  has(error_of([&] { alone->run("generator", loss_of(*alone)); }),
      "no training step of a trainer is running");
}

// A graph that two updates share must not be used with weights that the first has changed.
TEST_P(ManualSteps, RefuseAGraphWhoseWeightsHaveChanged) {
  struct Chain : PointGan {
    at::Tensor training_step(const Batch&) override {
      const at::Tensor score = discriminator->forward(made(4)).mean();
      update("discriminator", score, {.retain_graph = true});
      update("generator", score);
      return score;
    }
  };
  const std::string error = error_of([&] { trained(std::make_shared<Chain>(), options(1)); });
  EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
}

TEST_P(ManualSteps, ReportFrozenOptimizers) {
  const auto model = std::make_shared<PointGan>();
  model->freeze(*model->discriminator);
  const std::string error = error_of([&] { trained(model, options(1)); });
  EXPECT_NE(error.find("are frozen"), std::string::npos) << error;
}

TEST_P(ManualSteps, RefuseTheStateOfASingleOptimizer) {
  struct Plain : Module {
    Plain() { generator = register_module("generator", torch::nn::Linear(1, 1)); }
    at::Tensor training_step(const Batch& batch) override { return generator->forward(batch[0]).mean(); }
    torch::nn::Linear generator{nullptr};
  };
  struct Named : ManualModule {
    Named() { generator = register_module("generator", torch::nn::Linear(1, 1)); }
    NamedOptimizers configure_named_optimizers() override {
      NamedOptimizers made;
      made["generator"] = std::make_unique<Sgd>(ParameterGroups(*generator), SgdOptions{.lr = 0.1});
      return made;
    }
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = generator->forward(batch[0]).mean();
      update("generator", loss);
      return loss;
    }
    torch::nn::Linear generator{nullptr};
  };
  TensorData data = gan_points();
  Trainer plain(options(1)), named(options(1));
  plain.fit(std::make_shared<Plain>(), data);
  const StateDict state = plain.state_dict();
  named.prepare_model(std::make_shared<Named>());
  EXPECT_NE(error_of([&] { named.load_state_dict(state); }).find("it is unnamed"), std::string::npos);
}

TEST_P(ManualSteps, RefuseOptionsThatTheModelCannotHave) {
  TensorData data = gan_points();
  TrainerOptions with = options(1);
  with.optimizer = sgd(0.1);
  EXPECT_NE(error_of([&] {
              Trainer(with).fit(std::make_shared<PointGan>(), data);
            }).find("creates its optimizers itself"),
            std::string::npos);
  with = options(1);
  with.recheck_every_n_steps = 5;
  EXPECT_NE(error_of([&] {
              Trainer(with).fit(std::make_shared<PointGan>(), data);
            }).find("recheck_every_n_steps: 5, but"),
            std::string::npos);
  with = options(1);
  with.accumulate_grad_batches = 2;
  EXPECT_NE(error_of([&] {
              Trainer(with).fit(std::make_shared<PointGan>(), data);
            }).find("runs its updates itself"),
            std::string::npos);
}

TEST_P(ManualSteps, WarnAboutAnEpochWithoutUpdates) {
  const Said log;
  const auto model = std::make_shared<Manual>();
  model->step = [](Manual& gan, const Batch&) { return gan.generator_loss(gan.made(4)); };
  TensorData data = gan_points();
  Trainer(options(1)).fit(model, data);
  EXPECT_NE(log.text().find("did not call update(optimizer, loss) in this epoch"), std::string::npos)
      << log.text();
}

// A batch without an update between others is not skipped with the update after it.
TEST_P(ManualSteps, KeepTheMetricsOfBatchesWithoutUpdates) {
  struct Count : Metric {
    at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override {
      return at::full({2}, outputs.size(0), outputs.options());
    }
    double compute(std::span<const double> sums, double) const override { return sums[0]; }
  };
  struct Every2nd : PointGan {
    at::Tensor training_step(const Batch& batch) override {
      at::Tensor loss = discriminator_loss(batch[0], made(4));
      measure(Stage::train, batch[0], batch[0]);
      if (trainer().batch_index() == 3) loss = loss / 0;
      if (trainer().batch_index() % 2 == 1) update("discriminator", loss);
      return loss.detach();
    }
  };
  const auto model = std::make_shared<Every2nd>();
  model->add_metric("seen", std::make_shared<Count>());
  TrainerOptions with = options(1);
  with.on_nonfinite = "skip";
  const auto logger = std::make_shared<MemoryLogger>();
  with.loggers = {logger};
  trained(model, with);
  EXPECT_EQ(value_of(logger->records().back(), "train_seen"), 16);  // of 20; four were skipped
}

TEST_P(ManualSteps, WarnAboutAnOptimizerWithoutUpdates) {
  const Said log;
  const auto model = std::make_shared<Manual>();
  model->step = [](Manual& gan, const Batch&) {
    const at::Tensor loss = gan.generator_loss(gan.made(4));
    gan.run("generator", loss);
    return loss;
  };
  TensorData data = gan_points();
  Trainer(options(1)).fit(model, data);
  EXPECT_NE(log.text().find("optimizers without an update in this epoch: 'discriminator'"), std::string::npos)
      << log.text();
}

// Two losses that share what they come from.
TEST_P(ManualSteps, MayKeepTheGraphForALaterUpdate) {
  struct Shared : PointGan {
    at::Tensor training_step(const Batch&) override {
      const at::Tensor score = discriminator->forward(made(4).tanh()).mean();
      update("generator", score, {.retain_graph = keeps});
      update("discriminator", (score - 1).pow(2));
      return score;
    }
    NamedOptimizers configure_named_optimizers() override {
      NamedOptimizers made;
      made["generator"] =
          std::make_unique<Sgd>(ParameterGroups({generator[0]->parameters()[1]}), SgdOptions{.lr = 0.1});
      made["discriminator"] =
          std::make_unique<Sgd>(ParameterGroups({discriminator[2]->parameters()[1]}), SgdOptions{.lr = 0.1});
      return made;
    }
    bool keeps = true;
  };
  const auto model = std::make_shared<Shared>();
  trained(model, options(1));
  const auto lost = std::make_shared<Shared>();
  lost->keeps = false;
  EXPECT_NE(error_of([&] { trained(lost, options(1)); }), "no error");
}

}  // namespace
}  // namespace kindling
