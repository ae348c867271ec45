// The report of a step that was not finite, which must not affect the run.
#include <cmath>

#include "device/random_state.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/inspect/nonfinite_watch.h"
#include "training/step/nonfinite_fit.h"

namespace kindling {
namespace {

class Forensics : public OnDevice {
 protected:
  TrainerOptions options() const { return {.max_epochs = 1, .num_gpus = num_gpus_wanted()}; }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Forensics);

TEST_P(Forensics, NameTheInput) {
  TensorData data = poisoned_data(Poison::input, 6);
  const HeardWarnings warnings;
  poison_run(options(), data);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_TRUE(warnings.has("not finite from step 6 on")) << warnings.texts[0];
  EXPECT_TRUE(warnings.has("batch 5 (counted from 0) of epoch 1: tensor 0 of its batch has NaN; "))
      << warnings.texts[0];
  EXPECT_TRUE(warnings.has("Correct these samples")) << warnings.texts[0];
  EXPECT_FALSE(warnings.has("learning rate")) << warnings.texts[0];
  EXPECT_TRUE(warnings.has("the output of layer 'first' (aten::addmm) has NaN")) << warnings.texts[0];
}

// Labels that do not count may be NaN: they are no finding if a later batch of the window is not finite.
TEST_P(Forensics, DoNotNameLabelsThatDoNotCount) {
  struct Masked : Slope {
    at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
      const at::Tensor counts = labels.isfinite();
      return weighted(
          {(y - labels.nan_to_num()).abs().mul(counts).sum() / counts.sum().clamp_min(1), counts.sum()});
    }
  };
  const at::Tensor x = at::ones({8, 1}), labels = at::full({8, 1}, NAN);
  x.narrow(0, 6, 2).fill_(INFINITY);
  labels.narrow(0, 6, 2).fill_(1);
  TensorData data({x, labels}, {}, {.batch_size = 2, .shuffle = false});
  const HeardWarnings warnings;
  TrainerOptions window = options();
  window.accumulate_grad_batches = 4;
  Trainer(window).fit(std::make_shared<Masked>(), data);
  ASSERT_FALSE(warnings.texts.empty());
  EXPECT_TRUE(warnings.has("batch 3 (counted from 0) of epoch 1: tensor 0 of its batch has "))
      << warnings.texts[0];
  EXPECT_FALSE(warnings.has("tensor 1")) << warnings.texts[0];
}

TEST_P(Forensics, NameTheGradient) {
  TensorData data = poisoned_data(Poison::gradient, 6);
  const HeardWarnings warnings;
  poison_run(options(), data);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_TRUE(warnings.has("the loss is finite, but the gradient of 'first.weight' has an infinity"))
      << warnings.texts[0];
}

// Inputs of 1.5e38 pass the first layer, and four of them are too much for the second.
TEST_P(Forensics, NameTheLayer) {
  auto tensors = poisoned_tensors(Poison::none, 1);
  tensors[0].narrow(0, 4, 2).select(1, 0).fill_(1.5e38);
  TensorData data(tensors, {}, {.batch_size = kPoisonBatchSize, .shuffle = false});
  const HeardWarnings warnings;
  poison_run(options(), data);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_TRUE(warnings.has("not finite from step 3 on")) << warnings.texts[0];
  EXPECT_TRUE(warnings.has("for this step: the output of layer 'last' (aten::addmm) has an infinity"))
      << warnings.texts[0];
}

// A convolution uses its own memory, which is not initialized.
TEST_P(Forensics, NameWholeOperatorsOnly) {
  torch::nn::Sequential net{torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4)};
  net->to(device_);
  {
    const at::NoGradGuard no_grad;
    net->parameters()[0].fill_(1e38);
  }
  const NonfiniteWatch watch(*net);
  net->forward(at::full({2, 1, 8, 8}, 10, at::device(device_).dtype(at::kFloat)));
  EXPECT_EQ(watch.findings(),
            (std::vector<std::string>{"the output of layer '0' (aten::conv2d) has an infinity",
                                      "the output of layer '1' (aten::batch_norm) has NaN"}));
}

TEST_P(Forensics, ReportThatTheRepeatedStepIsFinite) {
  class Once : public PoisonNet {
   public:
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = PoisonNet::training_step(batch);
      return ++calls == 6 ? loss / 0 : loss;
    }
    int calls = 0;
  };
  TensorData data = poisoned_data(Poison::none, 1);
  const HeardWarnings warnings;
  const FitResult result = Trainer(options()).fit(std::make_shared<Once>(), data);
  EXPECT_EQ(result.diverged_step, 6);
  EXPECT_TRUE(warnings.has("re-running the step gave finite values")) << warnings.texts.at(0);
  EXPECT_NE(result.diverged_reason.find("re-running the step gave finite values"), std::string::npos)
      << result.diverged_reason;
}

TEST_P(Forensics, SaveTheBatch) {
  const Scratch scratch;
  for (const Poison poison : kPoisons) {
    TensorData data = poisoned_data(poison, 6);
    TrainerOptions saving = options();
    saving.nonfinite_dir = scratch.folder();
    const HeardWarnings warnings;
    poison_run(saving, data);
    const StateDict saved = load_safetensors(scratch / "nonfinite-step-00000006.safetensors");
    ASSERT_EQ(saved.tensors.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      const at::Tensor expected = poisoned_tensors(poison, 6)[i].narrow(0, 10, 2);
      const at::Tensor* found = saved.find("batch." + std::to_string(i));
      ASSERT_NE(found, nullptr);
      EXPECT_TRUE(same(at::nan_to_num(*found, -7), at::nan_to_num(expected, -7)));
      EXPECT_TRUE(same(found->isnan(), expected.isnan()));
    }
    EXPECT_EQ(saved.metadata.at("global_step"), "6");
    EXPECT_EQ(saved.metadata.at("epoch"), "0");
    EXPECT_EQ(saved.metadata.at("batch"), "5");
    EXPECT_FALSE(saved.metadata.at("found").empty());
    EXPECT_TRUE(warnings.has("its batch is in "));
  }
}

TEST_P(Forensics, ReportAFolderThatCannotBeWritten) {
  const Scratch scratch;
  TensorData data = poisoned_data(Poison::input, 6);
  TrainerOptions saving = options();
  saving.nonfinite_dir = scratch / "nowhere";
  const HeardWarnings warnings;
  EXPECT_EQ(poison_run(saving, data).result.diverged_step, 6);
  EXPECT_TRUE(warnings.has("its batch could not be saved")) << warnings.texts.at(0);
}

TEST_P(Forensics, LeaveModelAndRandomStateUnchanged) {
  struct Calls : Metric {
    at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override {
      return at::ones({2}, outputs.options());
    }
    double compute(std::span<const double> sums, double) const override { return sums[0]; }
  };
  class Normed : public PoisonNet {
   public:
    Normed() : norm(register_module("norm", torch::nn::BatchNorm1d(3))) {
      add_metric("calls", std::make_shared<Calls>());
    }
    at::Tensor forward(const at::Tensor& x) override {
      return PoisonNet::forward(at::dropout(norm->forward(x), 0.5, is_training()));
    }
    at::Tensor training_step(const Batch& batch) override {
      log("logged", batch[1].mean());
      measure(Stage::train, batch[1], batch[1]);
      return PoisonNet::training_step(batch);
    }
    torch::nn::BatchNorm1d norm;
  };
  class Witness : public Callback {
   public:
    void on_train_batch_end(Trainer& trainer, Module& model) override {
      buffers.clear();
      for (const at::Tensor& buffer : model.buffers()) buffers.push_back(buffer.clone());
      random = random_state(trainer.device());
    }
    void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override {
      for (std::size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(same(model.buffers()[i], buffers[i]));
      const auto now = random_state(trainer.device());
      for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(same(now[i], random[i]));
      for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
      EXPECT_TRUE(model.is_training());
      EXPECT_EQ(value_of(record, "logged"), 19.5);  // of all steps, each once
      EXPECT_EQ(value_of(record, "train_calls"), kPoisonBatches);
      EXPECT_EQ(trainer.progress().global_step, kPoisonBatches);
    }
    std::vector<at::Tensor> buffers, random;
  };
  TensorData data = poisoned_data(Poison::gradient, 6);
  TrainerOptions watched = options();
  watched.callbacks = {std::make_shared<Witness>()};
  EXPECT_EQ(Trainer(watched).fit(std::make_shared<Normed>(), data).diverged_step, 6);
}

}  // namespace
}  // namespace kindling
