// A checkpoint warns of an optimizer whose state it may not contain, and resumes wrapped optimizers of
// LibTorch.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/log.h"
#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"
#include "kindling/optim/torch_optimizer.h"
#include "kindling/training/trainer.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// Keeps AdamW's state where no checkpoint sees it.
class HiddenAdamW : public Optimizer {
 public:
  explicit HiddenAdamW(ParameterGroups parameters)
      : Optimizer(parameters, 1e-3), wrapped_(parameters.groups().front().parameters) {}

 protected:
  void update(const Update&) override { wrapped_.step(); }

 private:
  torch::optim::AdamW wrapped_;
};

class SignDescent : public Optimizer {
 public:
  explicit SignDescent(ParameterGroups parameters) : Optimizer(std::move(parameters), 1e-3) {}
  bool saves_all_state() const override { return true; }

 protected:
  void update(const Update& update) override {
    for (std::size_t i = 0; i < update.active.size(); ++i)
      update.parameters[i].sub_(update.gradients[i].sign(), update.lr.number);
  }
};

std::unique_ptr<Trainer> trainer_with(OptimizerFactory optimizer) {
  torch::manual_seed(1);
  auto trainer = std::make_unique<Trainer>(TrainerOptions{.optimizer = std::move(optimizer)});
  auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {8}});
  model->apply_init(Batch{at::zeros({1, 1, 8, 8})});
  trainer->prepare_model(model);
  return trainer;
}

void train(Trainer& trainer, int first, int end) {
  for (int step = first; step < end; ++step) {
    torch::manual_seed(100 + step);
    trainer.train_step(Batch{at::randn({4, 1, 8, 8}), at::randint(10, {4})});
  }
}

// The warnings of three saves: before the first step, after two steps, and after four.
std::string warnings_of_saves(const OptimizerFactory& optimizer) {
  std::string warnings;
  const auto trainer = trainer_with(optimizer);
  set_log_observer([&](LogLevel, const std::string& line) { warnings += line + "\n"; });
  (void)trainer->state_dict();
  EXPECT_EQ(warnings, "");
  train(*trainer, 0, 2);
  (void)trainer->state_dict();
  train(*trainer, 2, 4);
  (void)trainer->state_dict();
  set_log_observer({});
  return warnings;
}

template <class Rule>
OptimizerFactory factory() {
  return [](ParameterGroups parameters) { return std::make_unique<Rule>(std::move(parameters)); };
}

std::unique_ptr<Optimizer> wrapped_adamw(ParameterGroups parameters) {
  return TorchOptimizer::make<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(0.01));
}

TEST(CheckpointOfAnOptimizer, WarnsOnceAboutUnregisteredState) {
  const std::string warnings = warnings_of_saves(factory<HiddenAdamW>());
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;
  EXPECT_NE(warnings.find("HiddenAdamW has registered no state with add_state()"), std::string::npos)
      << warnings;
}

TEST(CheckpointOfAnOptimizer, DoesNotWarnAboutSavedOrMissingState) {
  EXPECT_EQ(warnings_of_saves(factory<SignDescent>()), "");
  EXPECT_EQ(warnings_of_saves(wrapped_adamw), "");
  EXPECT_EQ(
      warnings_of_saves([](ParameterGroups p) { return std::make_unique<Sgd>(std::move(p), SgdOptions{}); }),
      "");
  EXPECT_EQ(warnings_of_saves(
                [](ParameterGroups p) { return std::make_unique<Adam>(std::move(p), AdamOptions{}); }),
            "");
}

TEST(TorchOptimizer, ResumesARunBitIdentically) {
  const auto whole = trainer_with(wrapped_adamw), before = trainer_with(wrapped_adamw);
  train(*whole, 0, 9);
  train(*before, 0, 4);
  const StateDict saved = before->state_dict();
  const auto after = trainer_with(wrapped_adamw);
  after->load_state_dict(saved);
  train(*after, 4, 9);
  const auto expected = whole->model()->parameters(), resumed = after->model()->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same(resumed[i], expected[i])) << i;
}

}  // namespace
}  // namespace kindling
