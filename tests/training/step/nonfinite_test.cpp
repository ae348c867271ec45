// The effect of a step whose loss or gradients are not finite on parameters, optimizer and fit.
#include <iostream>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/step/nonfinite_fit.h"
#include "training/step/nonfinite_guard.h"

namespace kindling {
namespace {

class Nonfinite : public OnDevice {
 protected:
  TrainerOptions options(std::string on_nonfinite, OptimizerFactory optimizer = {}) const {
    return {.num_gpus = num_gpus_wanted(),
            .on_nonfinite = std::move(on_nonfinite),
            .optimizer = std::move(optimizer)};
  }
  // As if the fit had been stopped before step k.
  PoisonRun reference(std::int64_t k, const OptimizerFactory& rule, double clip) const {
    if (k == 1) return {};
    TensorData data = poisoned_data(Poison::none, 1);
    TrainerOptions plain = options("ignore", rule);
    plain.max_steps = k - 1;
    plain.gradient_clip_val = clip;
    return poison_run(plain, data);
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Nonfinite);

TEST_P(Nonfinite, StopNamesTheStepAndKeepsThePreviousWeights) {
  int tries = 0;
  for (const auto& [name, rule] : guarded_rules())
    for (std::int64_t k = 1; k <= kPoisonBatches; ++k) {
      const double clip = k % 2 == 0 ? 0.5 : 0;  // with the norm, and without
      const PoisonRun before = reference(k, rule, clip);
      for (const Poison poison : kPoisons) {
        TensorData data = poisoned_data(poison, k);
        TrainerOptions stopping = options("stop", rule);
        stopping.gradient_clip_val = clip;
        const PoisonRun run = poison_run(stopping, data);
        const auto where = [&, name = name] {
          return name + ", step " + std::to_string(k) + ", poison " +
                 std::to_string(static_cast<int>(poison));
        };
        EXPECT_EQ(run.result.status, FitStatus::diverged) << where();
        EXPECT_EQ(run.result.diverged_step, k) << where();
        EXPECT_EQ(run.result.progress.global_step, kPoisonBatches) << where();
        EXPECT_TRUE(same_training(run, before)) << where();
        ++tries;
      }
    }
  std::cout << tries << " poisoned fits\n";
}

TEST_P(Nonfinite, SkipMatchesARunWithoutTheBatch) {
  int tries = 0;
  for (const auto& [name, rule] : guarded_rules())
    for (const std::int64_t k : {1, 2, 7, 20})
      for (const Poison poison : kPoisons) {
        TensorData data = poisoned_data(poison, k), without = poisoned_data(Poison::none, 1, k);
        TrainerOptions skipping = options("skip", rule), plain = options("ignore", rule);
        skipping.max_epochs = plain.max_epochs = 2;
        const HeardWarnings warnings;
        const PoisonRun run = poison_run(skipping, data), expected = poison_run(plain, without);
        EXPECT_TRUE(same_training(run, expected)) << name << ", step " << k;
        EXPECT_EQ(run.result.status, FitStatus::finished);
        ASSERT_EQ(run.keeper->records.size(), 2U);
        for (std::size_t epoch = 0; epoch < 2; ++epoch) {
          EXPECT_EQ(value_of(run.keeper->records[epoch], "skipped_steps"), 1);
          EXPECT_EQ(value_of(run.keeper->records[epoch], "train_loss"),
                    value_of(expected.keeper->records[epoch], "train_loss"));
        }
        EXPECT_EQ(expected.keeper->records[0].find("skipped_steps"), nullptr);
        EXPECT_TRUE(warnings.has("epoch 2: 1 steps"));
        ++tries;
      }
  std::cout << tries << " fits with a skipped step\n";
}

TEST_P(Nonfinite, IgnoreChecksNothing) {
  TensorData data = poisoned_data(Poison::input, 3);
  const HeardWarnings warnings;
  const PoisonRun run = poison_run(options("ignore"), data);
  EXPECT_EQ(run.result.status, FitStatus::finished);
  EXPECT_EQ(run.result.diverged_step, std::nullopt);
  EXPECT_TRUE(run.model->first->weight.isnan().any().item<bool>());
  EXPECT_TRUE(warnings.texts.empty());
}

TEST_P(Nonfinite, GuardDoesNotAffectAFiniteFit) {
  TensorData data = poisoned_data(Poison::none, 1);
  TrainerOptions guarded = options("stop");
  guarded.log_every_n_steps = 1;
  const auto logger = std::make_shared<MemoryLogger>();
  guarded.loggers = {logger};
  const PoisonRun run = poison_run(guarded, data), plain = poison_run(options("ignore"), data);
  EXPECT_EQ(run.result.status, FitStatus::finished);
  EXPECT_TRUE(same_training(run, plain));
  for (const Record& record : logger->records())
    for (const std::string& name : names_of(record))
      EXPECT_TRUE(name.find("diverged") == std::string::npos && name.find("skipped") == std::string::npos);
}

TEST_P(Nonfinite, StepRecordsEndTheFitBeforeTheEpoch) {
  TensorData data = poisoned_data(Poison::gradient, 4);
  TrainerOptions stopping = options("stop");
  stopping.log_every_n_steps = 1;
  const PoisonRun run = poison_run(stopping, data);
  EXPECT_EQ(run.result.status, FitStatus::diverged);
  EXPECT_EQ(run.result.diverged_step, 4);
  EXPECT_EQ(run.result.progress.epoch, 0);
  if (device_.is_cpu()) {
    EXPECT_EQ(run.result.progress.global_step, 4);
  } else {
    EXPECT_LT(run.result.progress.global_step, kPoisonBatches);
  }
}

TEST_P(Nonfinite, PreviewEndsTheFitBeforeTheEpoch) {
  if (!device_.is_cpu()) GTEST_SKIP() << "a preview is copied once a second";
  class Previewer : public Callback {
   public:
    void on_train_batch_end(Trainer& trainer, Module&) override {
      for (const auto& [name, value] : trainer.preview()) EXPECT_EQ(name, "train_loss");
    }
  };
  TensorData data = poisoned_data(Poison::label, 4);
  TrainerOptions stopping = options("stop");
  stopping.callbacks = {std::make_shared<Previewer>()};
  const PoisonRun run = poison_run(stopping, data);
  EXPECT_EQ(run.result.diverged_step, 4);
  EXPECT_EQ(run.result.progress.global_step, 5);  // the next step has seen it
}

// Plain descent that knows nothing of found_inf, and whose state starts nobody knows how.
class OwnDescent : public Optimizer {
 public:
  explicit OwnDescent(ParameterGroups p, bool has_state = true) : Optimizer(std::move(p), 0.01) {
    if (has_state) add_state("count");
  }

 protected:
  void update(const Update& update) override {
    for (std::size_t i = 0; i < update.parameters.size(); ++i)
      update.parameters[i].sub_(update.gradients[i], 0.01);
  }
};

TEST_P(Nonfinite, RulesThatCannotSkipAStepAreStopped) {
  const std::vector<OptimizerFactory> rules{
      [](ParameterGroups p) { return std::make_unique<OwnDescent>(std::move(p)); },
      [](ParameterGroups p) {
        return std::make_unique<Sgd>(std::move(p), SgdOptions{.momentum = 0.9, .dampening = 0.5});
      }};
  for (std::size_t i = 0; i < rules.size(); ++i) {
    TensorData data = poisoned_data(Poison::gradient, 5);
    const PoisonRun run = poison_run(options("stop", rules[i]), data);
    EXPECT_EQ(run.result.diverged_step, 5);
    if (device_.is_cpu() || i == 1) {
      EXPECT_TRUE(same_training(run, reference(5, rules[i], 0)));
    } else {
      EXPECT_THROW(poison_run(options("skip", rules[i]), data), ConfigError);
    }
  }
}

TEST_P(Nonfinite, CustomRulesAreSkippedByTheBaseClass) {
  const OptimizerFactory rule = [](ParameterGroups p) {
    return std::make_unique<OwnDescent>(std::move(p), false);
  };
  TensorData data = poisoned_data(Poison::gradient, 5), without = poisoned_data(Poison::none, 1, 5);
  EXPECT_TRUE(
      same_training(poison_run(options("skip", rule), data), poison_run(options("ignore", rule), without)));
}

// In every type of gradient, at the end of a vector and in its rest, and in layouts of every kind.
TEST_P(Nonfinite, GuardChecksEveryNumber) {
  NonfiniteGuard guard("skip");
  EpochLog log(device_);
  const auto finds = [&](const at::Tensor& loss, const at::Tensor& gradient) {
    const at::Tensor weight = at::zeros(gradient.sizes(), gradient.options().layout(at::kStrided));
    weight.requires_grad_().mutable_grad() = gradient;
    Sgd optimizer({weight});
    guard.check({&loss, 1}, optimizer, {});
    guard.mark(log);
    log.append({});
    log.move_to_host();
    return *log.value(log.num_rows() - 1, 0) != 0;
  };
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor one = at::ones({}, at::device(device_).dtype(type)),
                     zeros = at::zeros({37}, one.options());
    const double largest = type == at::kHalf ? 65504 : type == at::kDouble ? 1e308 : 3e38;
    const double smallest = type == at::kHalf ? 6e-8 : type == at::kDouble ? 5e-324 : 1e-40;
    for (const double value : {0., -0., 1., -largest, largest, smallest, -smallest})
      EXPECT_FALSE(finds(one, zeros + value)) << type << value;
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL}) {
      for (const std::int64_t at : {0, 17, 36}) {
        const at::Tensor gradient = zeros.clone();
        gradient[at] = value;
        EXPECT_TRUE(finds(one, gradient)) << type << value;
      }
      EXPECT_TRUE(finds(one * value, zeros)) << type << value;
      EXPECT_TRUE(finds(at::full({}, value, at::device(device_)), zeros)) << type << value;  // another type
      EXPECT_TRUE(finds(
          one, (at::zeros({2, 3, 4, 4}, one.options()) + value).contiguous(at::MemoryFormat::ChannelsLast)));
      if (type != at::kFloat && type != at::kDouble) continue;
      EXPECT_TRUE(finds(one, at::complex(zeros, zeros + value))) << type << value;
      EXPECT_TRUE(finds(one, at::complex(zeros + value, zeros))) << type << value;
    }
    if (type == at::kFloat) {
      EXPECT_FALSE(finds(one, at::complex(zeros, zeros)));
    }
  }
}

TEST_P(Nonfinite, OptionIsChecked) {
  EXPECT_NE(error_text<ConfigError>([&] { Trainer(options("halt")); }).find("on_nonfinite"),
            std::string::npos);
}

TEST_P(Nonfinite, BatchesOfCustomLoopsAreUnknown) {
  const HeardWarnings warnings;
  Trainer trainer(options("stop"));
  trainer.prepare_model(std::make_shared<PoisonNet>());
  for (const Poison poison : {Poison::none, Poison::input, Poison::none}) {
    const auto tensors = poisoned_tensors(poison, 1);
    trainer.train_step(trainer.prepare_batch(
        Batch{tensors[0].narrow(0, 0, 2), tensors[1].narrow(0, 0, 2), tensors[2].narrow(0, 0, 2)}));
  }
  trainer.finish_epoch();
  EXPECT_EQ(trainer.stop_token().reason(), FitReason::diverged);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_TRUE(warnings.has("not finite from step 2 on"));
  EXPECT_TRUE(warnings.has("came from a custom training loop"));
}

}  // namespace
}  // namespace kindling
