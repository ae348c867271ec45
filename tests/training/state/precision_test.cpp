// The dtypes in which a run stores its numbers and computes.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <algorithm>
#include <functional>

#include "kindling/base/error.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "support/device_under_test.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/resumed_fit.h"
#include "training/loop/small_fit.h"
#include "training/state/grad_scaler.h"

namespace kindling {
namespace {

// Notes the types that it meets.
class TypeNet : public Classifier {
 public:
  TypeNet() {
    net->push_back(torch::nn::Flatten());
    net->push_back(LazyLinear(8));
    net->push_back(torch::nn::BatchNorm1d(8));
    net->push_back(torch::nn::ReLU());
    net->push_back(LazyLinear(10));
    register_module("net", net);
  }
  at::Tensor forward(const at::Tensor& x) override {
    input = x.scalar_type();
    const at::Tensor y = net->forward(x);
    (is_training() ? output : evaluated) = y.scalar_type();
    return y;
  }
  torch::nn::Sequential net;
  at::ScalarType input = at::kByte, output = at::kByte, evaluated = at::kByte;
};

class PrecisionOf : public OnDevice {
 protected:
  TrainerOptions options(const std::string& precision) const {
    return {.max_epochs = 2, .num_gpus = num_gpus_wanted(), .precision = precision, .log_every_n_steps = 1};
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(PrecisionOf);

TEST_P(PrecisionOf, DecidesTheTypes) {
  struct Types {
    std::string precision;
    at::ScalarType weights, computed;
  };
  for (const Types& types :
       {Types{"32-true", at::kFloat, at::kFloat}, Types{"bf16-mixed", at::kFloat, at::kBFloat16},
        Types{"16-mixed", at::kFloat, at::kHalf}, Types{"bf16-true", at::kBFloat16, at::kBFloat16},
        Types{"64-true", at::kDouble, at::kDouble}}) {
    SCOPED_TRACE(types.precision);
    const auto model = std::make_shared<TypeNet>();
    NoiseImages data(24, 6, 4);
    Trainer trainer(options(types.precision));
    const FitResult result = trainer.fit(model, data);
    EXPECT_EQ(result.status, FitStatus::finished);
    EXPECT_EQ(model->input, types.weights);  // of a batch
    EXPECT_EQ(model->output, types.computed);
    EXPECT_EQ(model->evaluated, types.computed);
    for (const at::Tensor& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), types.weights);
    for (const auto& item : model->named_buffers())
      EXPECT_EQ(item.value().scalar_type(),
                item.key().ends_with("num_batches_tracked") ? at::kLong : types.weights)
          << item.key();
    EXPECT_EQ(trainer.predict(model, data).scalar_type(), types.computed);
    // Outside of a trainer's loops nothing is left of it.
    EXPECT_FALSE(at::autocast::is_autocast_enabled(trainer.device().type()));
    EXPECT_TRUE(std::isfinite(result.metrics.at("val_loss")));
  }
}

// Its own batches, too.
TEST_P(PrecisionOf, WorksInCustomLoops) {
  const auto model = std::make_shared<TypeNet>();
  Trainer trainer(options("64-true"));
  trainer.prepare_model(model);
  const Batch batch = trainer.prepare_batch(Batch{at::rand({4, 1, 6, 6}), at::arange(4)});
  EXPECT_EQ(batch[0].scalar_type(), at::kDouble);
  EXPECT_EQ(batch[1].scalar_type(), at::kLong);
  trainer.train_step(batch);
  EXPECT_EQ(model->output, at::kDouble);
}

// Of lazy layers, too, whose parameters come with the first batch; and of batches that nobody has prepared.
TEST_P(PrecisionOf, WorksForLazyLayersAndAnyBatch) {
  const auto model = std::make_shared<TypeNet>();
  Trainer trainer(options("64-true"));
  trainer.prepare_model(model);
  trainer.train_step(Batch{at::rand({4, 1, 6, 6}).to(trainer.device()), at::arange(4).to(trainer.device())});
  for (const at::Tensor& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kDouble);
}

// Loaded weights take the dtype of the run, not of the file.
TEST_P(PrecisionOf, DoesNotDependOnThePrecisionOfAFile) {
  const Scratch scratch(memory_folder());
  const auto saved = std::make_shared<TypeNet>();
  saved->forward(at::rand({2, 1, 6, 6}));
  StateDict narrow = state_dict(*saved);
  for (auto& [name, tensor] : narrow.tensors)
    if (tensor.is_floating_point()) tensor = tensor.to(at::kBFloat16);
  save_safetensors(narrow, scratch / "narrow.safetensors");
  const auto model = std::make_shared<TypeNet>();
  load_weights(*model, scratch / "narrow.safetensors");
  NoiseImages data(24, 6, 4);
  Trainer(options("bf16-mixed")).fit(model, data);
  for (const at::Tensor& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
}

TEST_P(PrecisionOf, IsRestoredAfterAnEvaluation) {
  const auto model = std::make_shared<TypeNet>();
  NoiseImages data(24, 6, 4);
  Trainer(options("32-true")).fit(model, data);
  const StateDict before = copy_to(state_dict(*model), cpu());
  Trainer(options("bf16-true")).validate(model, data);
  for (const auto& [name, tensor] : state_dict(*model).tensors)
    EXPECT_TRUE(same(tensor.cpu(), *before.find(name))) << name;
}

// Float64 sees what float32 rounds away: a step of 1e-12.
TEST_P(PrecisionOf, DoubleIsDouble) {
  const auto model = std::make_shared<Slope>();
  TrainerOptions made = options("64-true");
  made.max_epochs.reset();
  made.max_steps = 2;
  made.optimizer = sgd(1e-12);
  TensorData data = ramp(2, 0, 1);  // x = 0, then x = 1: the gradient is -1
  Trainer(made).fit(model, data);
  EXPECT_EQ(model->weight.item<double>(), 1e-12);
}

TEST_P(PrecisionOf, ScaledGradientsSkipExactlyThePoisonedSteps) {
  // sqrt at 0 has an infinite derivative.
  struct Poisoned : Slope {
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = Slope::training_step(batch), sum = weight.sum();
      const bool is_poisoned = std::ranges::find(steps, trainer().progress().global_step) != steps.end();
      return loss + at::sqrt((sum - sum.detach()).abs() + (is_poisoned ? 0. : 1.));
    }
    std::vector<std::int64_t> steps;
  };
  struct Watch : Callback {
    void on_after_optimizer_step(Trainer&, Module& model, Optimizer&) override {
      weights.push_back(model.parameters()[0].detach().cpu().item<float>());
    }
    std::vector<float> weights;
  };
  const auto model = std::make_shared<Poisoned>();
  model->steps = {2, 3, 7};
  const auto watch = std::make_shared<Watch>();
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions made = options("16-mixed");
  made.max_epochs = 1;
  made.optimizer = [](ParameterGroups parameters) {
    return std::make_unique<Adam>(parameters, AdamOptions{.lr = 0.1});
  };
  made.callbacks = {watch};
  made.loggers = {logger};
  TensorData data = ramp(20, 0, 2);
  Trainer trainer(made);
  EXPECT_EQ(trainer.fit(model, data).status, FitStatus::finished);
  ASSERT_EQ(watch->weights.size(), 10u);
  for (std::int64_t step = 0; step < 10; ++step) {
    const bool is_poisoned = std::ranges::find(model->steps, step) != model->steps.end();
    const auto at = static_cast<std::size_t>(step);
    const float before = step == 0 ? 0 : watch->weights[at - 1];
    EXPECT_EQ(watch->weights[at] == before, is_poisoned) << "step " << step;
  }
  EXPECT_EQ(value_of(logger->records().back(), "skipped_steps"), 3);
  // Three halvings of 65536.
  EXPECT_EQ(copy_to(*trainer.state_dict().find("scaler.scale"), cpu()).item<float>(), 8192);
}

// The reference is torch.amp.GradScaler above the limit: each such step halves the scale. There its scale is
// 2^-128 after 144 steps, whose reciprocal is infinite in float32, and 0 after 166.
TEST_P(PrecisionOf, TheLossScaleHasALowerLimit) {
  GradScaler scaler(device_);
  const at::Tensor yes = at::ones({}, at::dtype(at::kFloat).device(device_));
  for (int step = 1; step <= 200; ++step) {
    scaler.adjust(yes);
    EXPECT_EQ(copy_to(scaler.scale(), cpu()).item<float>(), std::max(std::ldexp(1., 16 - step), 0x1p-24))
        << step;
  }
}

// 200 steps with infinite gradients, then good ones: they train as if nothing had happened.
TEST_P(PrecisionOf, GoodStepsAfterManySkippedOnesTrainAsUsual) {
  struct Poisoned : Slope {  // computes in float32
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = Slope::training_step(batch), sum = weight.sum();
      const bool is_poisoned = trainer().progress().global_step < num_poisoned;
      return loss + at::sqrt((sum - sum.detach()).abs() + (is_poisoned ? 0. : 1.));
    }
    std::int64_t num_poisoned = 0;
  };
  const auto trained = [&](const std::string& precision, std::int64_t num_poisoned) {
    const auto model = std::make_shared<Poisoned>();
    model->num_poisoned = num_poisoned;
    TrainerOptions made = options(precision);
    made.max_epochs.reset();
    made.max_steps = num_poisoned + 10;
    made.optimizer = sgd(0.01);
    made.loggers = {};
    TensorData data = ramp(20, 0, 2);  // 10 steps per epoch
    Trainer(made).fit(model, data);
    return copy_to(model->weight.detach(), cpu()).item<float>();
  };
  const float expected = trained("32-true", 0);
  const LogLines log;
  EXPECT_EQ(trained("16-mixed", 200), expected);
  std::vector<std::string> warnings;
  std::ranges::copy_if(log.texts, std::back_inserter(warnings),
                       [](const std::string& text) { return text.find("loss scale") != std::string::npos; });
  ASSERT_EQ(warnings.size(), 3u);  // at 2^-1, 2^-10 and 2^-19
  EXPECT_NE(warnings[0].find("step 17: precision = \"16-mixed\" has lowered the loss scale to 0.5"),
            std::string::npos)
      << warnings[0];
  EXPECT_NE(warnings[0].find("bf16-mixed"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[2].find("step 35:"), std::string::npos) << warnings[2];
}

// Scaling by powers of two changes no bit of a training that does not overflow or vanish.
TEST_P(PrecisionOf, ScalingChangesNoGradient) {
  std::vector<double> norms[2];
  for (const bool scaled : {false, true}) {
    at::manual_seed(3);
    const auto model = std::make_shared<Slope>();  // computes in float32 either way
    const auto logger = std::make_shared<MemoryLogger>();
    TrainerOptions made = options(scaled ? "16-mixed" : "32-true");
    made.optimizer = sgd(0.001);
    made.gradient_clip_val = 1e6;
    made.loggers = {logger};
    made.accumulate_grad_batches = 2;
    TensorData data = ramp(14, 0, 2);
    Trainer(made).fit(model, data);
    for (const Record& record : logger->records())
      if (record.kind == Record::Kind::step) norms[scaled].push_back(value_of(record, "grad_norm"));
  }
  EXPECT_EQ(norms[0].size(), 8u);
  EXPECT_EQ(norms[0], norms[1]);
}

// A fit that is stopped after the step and resumed ends like the whole one.
void expect_same_after_resume(const std::function<ResumedFit()>& made, const ResumedFit& whole,
                              std::int64_t step, const std::string& text) {
  const Scratch scratch(memory_folder());
  ResumedFit stopped = made(), rest = made();
  stopped.meddler->stop_at = step;
  stopped.fit();
  save_checkpoint(stopped.end, scratch / "file");
  rest.fit(scratch / "file");
  expect_same_state(rest.end, whole.end, text + ", step " + std::to_string(step));
}

TEST_P(PrecisionOf, ResumesBitIdenticallyWithItsScale) {
  for (const std::string precision : {"16-mixed", "bf16-true", "64-true", "bf16-mixed"}) {
    const auto made = [&] {
      ResumedFit fit("adamw", num_gpus_wanted());
      fit.options.precision = precision;
      fit.options.max_epochs = 2;
      return fit;
    };
    ResumedFit whole = made();
    whole.fit();
    EXPECT_EQ(whole.end.find("scaler.scale") != nullptr, precision == "16-mixed");
    for (const std::int64_t step : {1, 11, 20}) expect_same_after_resume(made, whole, step, precision);
  }
}

TEST_P(PrecisionOf, ResumesBitIdenticallyWithMasterWeights) {
  for (const std::string rule : {"adamw", "sgd"}) {
    const auto made = [&] {
      ResumedFit fit(rule, num_gpus_wanted());
      fit.options.precision = "bf16-true";
      fit.options.master_weights = true;
      fit.options.max_epochs = 2;
      return fit;
    };
    ResumedFit whole = made();
    whole.fit();
    std::size_t num_masters = 0;
    for (const auto& [name, tensor] : whole.end.tensors) {
      if (!name.ends_with(".master_weight")) continue;
      ++num_masters;
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
      EXPECT_FALSE(same(tensor.cpu(), tensor.cpu().to(at::kBFloat16).to(at::kFloat))) << name;
    }
    EXPECT_EQ(num_masters, 6u);
    for (const std::int64_t step : {1, 11}) expect_same_after_resume(made, whole, step, rule);
  }
}

// A model that updates its own optimizer.
class ManualSlope : public ManualModule {
 public:
  ManualSlope() : weight(register_parameter("weight", at::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& x) override { return weight * x; }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = at::mse_loss(forward(batch[0]), batch.labels());
    update("all", loss);
    return loss;
  }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["all"] =
        std::make_unique<Sgd>(ParameterGroups(*this), SgdOptions{.lr = 1e-4, .momentum = 0.9});
    return optimizers;
  }
  at::Tensor weight;
};

TEST(MasterWeights, OfAManualModuleAreResumed) {
  const Scratch scratch;
  std::filesystem::path saved;
  const auto fitted = [&](std::int64_t epochs, const std::string& folder, const FitOptions& options) {
    const auto checkpoint =
        std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = scratch / folder});
    TensorData data = ramp(16, 0, 4);
    const auto model = std::make_shared<ManualSlope>();
    Trainer(
        {.max_epochs = epochs, .precision = "bf16-true", .master_weights = true, .callbacks = {checkpoint}})
        .fit(model, data, options);
    saved = checkpoint->last();
    return model->weight.detach().clone();
  };
  const at::Tensor whole = fitted(4, "whole", {});
  fitted(2, "parts", {});
  const std::filesystem::path half = saved;
  EXPECT_TRUE(std::ranges::any_of(load_checkpoint(half).tensors,
                                  [](const auto& entry) { return entry.first.ends_with(".master_weight"); }));
  EXPECT_TRUE(same(fitted(4, "parts", {.resume = half}), whole));
}

TEST(PrecisionOptions, AllowMasterWeightsForBfloat16Only) {
  const std::string text =
      error_text<ConfigError>([] { Trainer({.max_epochs = 1, .master_weights = true}); });
  EXPECT_NE(text.find("trainer.master_weights: true with precision = \"32-true\""), std::string::npos)
      << text;
  EXPECT_NE(text.find("expected: precision = \"bf16-true\""), std::string::npos) << text;
}

// On the CPU and on a GPU alike; the default dtype of the other tests would make it a run in float32.
TEST_P(PrecisionOf, MixedTrainsAsWellAsFullPrecision) {
  const auto accuracy = [&](const std::string& precision) {
    at::manual_seed(0);
    NoiseImages data(400, 10, 20);
    TrainerOptions made = options(precision);
    made.max_epochs = 6;
    made.optimizer = [](ParameterGroups parameters) {
      return std::make_unique<Adam>(parameters, AdamOptions{.lr = 0.01});
    };
    return Trainer(made).fit(std::make_shared<Mlp>(MlpOptions{.hidden = {32}}), data).metrics.at("val_acc");
  };
  EXPECT_GT(accuracy("32-true"), 0.95);
  EXPECT_GT(accuracy("bf16-mixed"), 0.95);
  EXPECT_GT(accuracy("bf16-true"), 0.9);  // updates that are lost in 8 bits of a weight
}

TEST(PrecisionOptions, AreChecked) {
  const std::string text = error_text<ConfigError>([] { Trainer({.precision = "fp16"}); });
  EXPECT_NE(text.find("precision is \"fp16\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"bf16-mixed\""), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
