// model.class_weights and model.balanced_class_weights: fits, resumed fits and evaluations.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "kindling/cli/registry.h"
#include "kindling/nn/classifier.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class ClassWeightsRun : public testing::Test {
 protected:
  // 60 rows in order; the first 40 are for training: 30 of class a, 10 of class b, so the balanced weights
  // are 40 / (2 * 30) and 40 / (2 * 10).
  void SetUp() override {
    std::string text = "x,z,kind\n";
    for (int i = 0; i < 60; ++i)
      text += std::to_string(i * 7 % 11) + "," + std::to_string(i * 3 % 5) + "," + (i % 4 == 3 ? "b" : "a") +
              "\n";
    write_text(scratch_ / "kinds.csv", text);
    write_text(scratch_ / "kinds.toml",
               "[model]\nname = \"mlp\"\nhidden = [4]\nnum_classes = 2\n[data]\nname = \"csv\"\n"
               "file = \"kinds.csv\"\nlabel = \"kind\"\ntrain = [0, 40]\nval = [40, 60]\nbatch_size = 10\n"
               "[trainer]\nmax_epochs = 4\nnum_threads = 1\nnum_gpus = 0\n");
  }
  void write_own_loss_config() {
    write_text(scratch_ / "own.toml",
               "[model]\nname = \"own_loss\"\nclass_weights = [1.0, 2.0]\n[data]\nname = \"csv\"\n"
               "file = \"kinds.csv\"\nlabel = \"kind\"\nval_fraction = 0.2\n[trainer]\nmax_epochs = 1\n"
               "num_gpus = 0\n");
  }
  ProgramRun fit(const std::string& runs, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"fit", scratch_ / "kinds.toml", "--quiet", "--progress=none",
                                   "run.dir=" + (scratch_ / runs).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  std::string run(const std::string& runs) const { return scratch_ / runs / "kinds/0001"; }
  StateDict weights(const std::string& runs) const {
    return load_state_file(run(runs) + "/weights.safetensors");
  }
  static void expect_same(const StateDict& a, const StateDict& b) {
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    ASSERT_FALSE(a.tensors.empty());
    for (const auto& [name, tensor] : a.tensors) {
      ASSERT_NE(b.find(name), nullptr) << name;
      EXPECT_TRUE(same(tensor, *b.find(name))) << name;
    }
  }
  std::string validated(const std::string& runs, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"validate", run(runs), "--quiet"});
    const ProgramRun result = run_program(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  Scratch scratch_;
};

TEST_F(ClassWeightsRun, BalancedWeightsAreThoseOfTheTrainingSplit) {
  ASSERT_EQ(fit("auto", {"model.balanced_class_weights=true"}).exit_code, 0);
  ASSERT_EQ(fit("list", {"model.class_weights=[0.6666666666666666, 2.0]"}).exit_code, 0);
  ASSERT_EQ(fit("none").exit_code, 0);
  expect_same(weights("auto"), weights("list"));
  EXPECT_FALSE(same(*weights("auto").find("net.1.weight"), *weights("none").find("net.1.weight")));
  EXPECT_EQ(validated("auto"), validated("list"));
  EXPECT_NE(validated("auto"), validated("auto", {"model.balanced_class_weights=false"}));
  ASSERT_EQ(fit("word", {"model.class_weights=balanced"}).exit_code, 0);
  expect_same(weights("word"), weights("list"));
  EXPECT_EQ(validated("word"), validated("list"));
}

TEST_F(ClassWeightsRun, ResumedRunHasTheSameWeights) {
  ASSERT_EQ(fit("whole", {"model.balanced_class_weights=true"}).exit_code, 0);
  ASSERT_EQ(fit("parts", {"model.balanced_class_weights=true", "trainer.max_epochs=2"}).exit_code, 0);
  const ProgramRun resumed =
      run_program({"fit", "--resume", run("parts"), "trainer.max_epochs=4", "--quiet", "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same(weights("whole"), weights("parts"));
}

TEST_F(ClassWeightsRun, AClassAboveAllTrainingLabelsIsMissing) {
  const ProgramRun result =
      run_program({"fit", "model.name=mlp", "model.num_classes=11", "data.name=digits",
                   "model.balanced_class_weights=true", "trainer.max_epochs=1", "--check"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("no training sample has the class 10"), std::string::npos) << result.err;
}

TEST_F(ClassWeightsRun, WarnsOfWeightsThatMakeNaN) {
  const ProgramRun result = fit("zero", {"model.class_weights=[1.0, 0.0]", "--check"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err,
            "warning: model.class_weights: class 1 has the weight 0; the loss of a batch that contains only "
            "such classes is NaN\n");
}

// A classifier whose step does not call Classifier::loss().
class OwnLoss : public Classifier {
 public:
  OwnLoss() { net_ = register_module("net", torch::nn::Linear(2, 2)); }
  at::Tensor forward(const at::Tensor& inputs) override { return net_->forward(inputs); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor&) override { return outputs.square().mean(); }

 private:
  torch::nn::Linear net_ = nullptr;
};

TEST_F(ClassWeightsRun, WarnsOfALossThatIgnoresThem) {
  write_own_loss_config();
  Registry registry;
  register_builtin(registry);
  registry.model<OwnLoss>("own_loss", "with a loss of its own");
  const ProgramRun result = run_program({"fit", scratch_ / "own.toml", "--check"}, registry);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("warning: model.class_weights: the step of "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("has a custom loss, which does not use them"), std::string::npos);
}

TEST_F(ClassWeightsRun, ReportsMistakesBeforeTheRun) {
  const auto refused = [&](std::vector<std::string> more, const std::string& expected) {
    const ProgramRun result = fit("refused", more);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(run("refused"))) << expected;
  };
  refused({"model.class_weights=[1.0, 2.0, 3.0]"},
          "'model.class_weights': 3 weights, and num_classes = 2; expected: one weight per class");
  refused({"model.class_weights=[1.0, 2.0, 3.0]", "batch_finder.max_trials=2"}, "3 weights, and num_classes");
  refused({"model.class_weights=[0.0, 0.0]"}, "'model.class_weights': all weights are 0");
  refused({"model.class_weights=[1.0, -2.0]"}, "model.class_weights[1]");
  refused({"model.class_weights=balance"},
          "'model.class_weights': expected an array of numbers >= 0, or \"balanced\", found \"balance\"");
  refused({"model.class_weights=2"}, "(put it in brackets)");
  refused({"model.class_weights=[1.0, 2.0]", "model.balanced_class_weights=true"}, "are both set");
  refused({"model.balanced_class_weights=true", "data.train=[0, 3]"},
          "no training sample has the class 1 ('b')");
  write_text(scratch_ / "kinds.toml",
             "[model]\nname = \"mlp_regressor\"\n[data]\nname = \"csv\"\nfile = \"kinds.csv\"\n"
             "target = \"x\"\nfeatures = [\"z\"]\n[trainer]\nmax_epochs = 1\nnum_gpus = 0\n");
  refused({"model.balanced_class_weights=true"}, "mlp_regressor is not a classifier");
  refused({"model.label_smoothing=0.1"},
          "'model.label_smoothing': the model mlp_regressor is not a classifier");
}

TEST_F(ClassWeightsRun, OtherKeysOfTheLossAreHeededOrRefused) {
  ASSERT_EQ(fit("plain").exit_code, 0);
  for (const char* key : {"model.label_smoothing=0.2", "model.focal_gamma=2.0", "model.ignore_index=0"}) {
    const std::string runs = std::string(key).substr(6, 5);
    ASSERT_EQ(fit(runs, {key}).exit_code, 0);
    EXPECT_FALSE(same(*weights(runs).find("net.1.weight"), *weights("plain").find("net.1.weight"))) << key;
    EXPECT_NE(validated(runs), validated("plain")) << key;
  }
  const auto error_of = [&](std::vector<std::string> more) { return fit("refused", std::move(more)).err; };
  EXPECT_NE(error_of({"model.multi_label=true", "model.label_smoothing=0.1"}).find("'model.label_smoothing'"),
            std::string::npos);
  EXPECT_NE(error_of({"model.pos_weight=[2.0]"}).find("'model.pos_weight'"), std::string::npos);
  EXPECT_NE(
      error_of({"model.multi_label=true", "model.class_weights=[1.0, 2.0]"}).find("'model.class_weights'"),
      std::string::npos);
  EXPECT_NE(error_of({"model.label_smoothing=1.0"}).find("< 1"), std::string::npos);
  EXPECT_NE(error_of({"optimizer.name=adam", "optimizer.weight_decay_end=0.1"}).find("weight_decay"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
