// Optimizers that evaluate the loss of a batch several times.
#include <ATen/Functions.h>

#include "kindling/base/error.h"
#include "kindling/optim/lbfgs.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Two layers on a curve; counts its evaluations and logs their number.
class Curve : public Module {
 public:
  Curve() : net_(register_module("net", torch::nn::Sequential())) {
    at::manual_seed(1);
    net_->push_back(torch::nn::Linear(1, 8));
    net_->push_back(torch::nn::Tanh());
    net_->push_back(torch::nn::Linear(8, 1));
  }
  at::Tensor forward(const at::Tensor& x) override { return net_->forward(x); }
  at::Tensor training_step(const Batch& batch) override {
    log("evaluations", static_cast<double>(++evaluations));
    return (forward(batch[0]) - batch[1]).pow(2).mean();
  }

  int evaluations = 0;

 private:
  torch::nn::Sequential net_;
};

std::vector<at::Tensor> curve_samples() {
  const at::Tensor x = at::linspace(-2, 2, 40).unsqueeze(1);
  return {x, x.sin()};
}

OptimizerFactory lbfgs(LbfgsOptions options) {
  return [=](ParameterGroups parameters) { return std::make_unique<Lbfgs>(std::move(parameters), options); };
}

class ClosureStep : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 4,
            .num_gpus = num_gpus_wanted(),
            .optimizer = lbfgs({.max_iter = 5, .line_search_fn = "strong_wolfe"})};
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(ClosureStep);

TEST_P(ClosureStep, MatchesAHandWrittenLoopWithAClosure) {
  TensorData data(curve_samples(), {}, {.batch_size = 40, .shuffle = false});
  const auto model = std::make_shared<Curve>(), own = std::make_shared<Curve>();
  TrainerOptions with_records = options();
  const auto logger = std::make_shared<MemoryLogger>();
  with_records.loggers = {logger};
  Trainer(with_records).fit(model, data);

  own->to(device_);
  Lbfgs optimizer(*own, {.max_iter = 5, .line_search_fn = "strong_wolfe"});
  const auto samples = curve_samples();
  int evaluations = 0;
  for (int step = 0; step < 4; ++step) {
    const int before = evaluations;
    const at::Tensor loss = optimizer.step_with([&] {
      ++evaluations;
      optimizer.zero_grad();
      at::Tensor now = (own->forward(samples[0].to(device_)) - samples[1].to(device_)).pow(2).mean();
      now.backward();
      return now;
    });
    // The log has the values of the first evaluation of the step.
    const Record& record = logger->records().at(static_cast<std::size_t>(step));
    EXPECT_EQ(value_of(record, "train_loss"), loss.item<float>());
    EXPECT_EQ(value_of(record, "evaluations"), before + 1);
  }
  EXPECT_GT(evaluations, 8);
  EXPECT_EQ(model->evaluations, evaluations);
  for (std::size_t i = 0; i < own->parameters().size(); ++i)
    EXPECT_TRUE(same(model->parameters()[i], own->parameters()[i]));
}

TEST_P(ClosureStep, RefusesOptionsThatChangeGradientsBetweenEvaluations) {
  TensorData data(curve_samples(), {}, {.batch_size = 20, .shuffle = false});
  TrainerOptions clipping = options(), accumulating = options();
  clipping.gradient_clip_val = 1;
  accumulating.accumulate_grad_batches = 2;
  EXPECT_EQ(error_text<ConfigError>([&] { Trainer(clipping).fit(std::make_shared<Curve>(), data); }),
            "gradient_clip_val: it is set, but the optimizer evaluates the loss of a batch several times; "
            "expected: the "
            "default value with such an optimizer (lbfgs)");
  EXPECT_THROW(Trainer(accumulating).fit(std::make_shared<Curve>(), data), ConfigError);
}

TEST_P(ClosureStep, KeepsLoggingWhenAnEvaluationThrows) {
  class Fragile : public Curve {
   public:
    at::Tensor training_step(const Batch& batch) override {
      if (evaluations == 2 && !has_thrown) {
        has_thrown = true;
        throw std::runtime_error("the second evaluation");
      }
      return Curve::training_step(batch);
    }
    bool has_thrown = false;
  };
  TensorData data(curve_samples(), {}, {.batch_size = 40, .shuffle = false});
  const auto model = std::make_shared<Fragile>();
  Trainer trainer(options());
  EXPECT_THROW(trainer.fit(model, data), std::runtime_error);
  EXPECT_EQ(trainer.fit(model, data).status, FitStatus::finished);
}

}  // namespace
}  // namespace kindling
