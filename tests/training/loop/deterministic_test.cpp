#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

bool is_deterministic() { return at::globalContext().deterministicAlgorithms(); }

// Uses an operator that LibTorch has no deterministic form of: put_ with an index that may stand twice.
class Puts : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    was_on.push_back(is_deterministic());
    put();
    return Slope::training_step(batch);
  }
  void validation_step(const Batch& batch) override {
    was_on.push_back(is_deterministic());
    Slope::validation_step(batch);
  }
  bool puts = true;
  std::vector<bool> was_on;

 private:
  void put() const {
    if (puts) at::zeros({4}).put_(at::zeros({1}, at::kLong), at::ones({1}));
  }
};

std::string error_with(const std::string& deterministic, const std::shared_ptr<Puts>& model) {
  TensorData data = ramp(4, 2, 2);
  return error_text<Error>([&] {
    Trainer({.max_epochs = 2, .deterministic = deterministic, .optimizer = sgd(0.125)}).fit(model, data);
  });
}

TEST(Deterministic, RefusesNondeterministicOperators) {
  const auto model = std::make_shared<Puts>();
  EXPECT_EQ(error_with("false", model), "(no error)");
  const std::string error = error_with("true", model);
  EXPECT_NE(error.find("put_ has no deterministic implementation"), std::string::npos) << error;
  EXPECT_NE(error.find("set deterministic to warn"), std::string::npos) << error;
  EXPECT_FALSE(is_deterministic()) << "what was set before comes back";
}

TEST(Deterministic, WarnsOnceInTheAppLog) {
  std::vector<std::string> warnings;
  configure_log({.level = LogLevel::warning});
  set_log_observer([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_with("warn", std::make_shared<Puts>()), "(no error)");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  set_log_observer({});
  configure_log({});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "put_ has no deterministic implementation: results of another run may differ");
}

TEST(Deterministic, HoldsWhileTheTrainerRuns) {
  for (const bool is_on_before : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(is_on_before, /*warn_only=*/true);
    const auto model = std::make_shared<Puts>();
    model->puts = false;
    TensorData data = ramp(4, 2, 2);
    Trainer trainer({.max_epochs = 1, .deterministic = "true", .optimizer = sgd(0.125)});
    trainer.fit(model, data);
    EXPECT_EQ(is_deterministic(), is_on_before);
    trainer.validate(model, data);
    trainer.prepare_model(model);
    trainer.train_step({at::ones({2, 1}), at::ones({2, 1})});
    EXPECT_EQ(is_deterministic(), is_on_before);
    EXPECT_TRUE(at::globalContext().deterministicAlgorithmsWarnOnly());
    // Sanity check, two steps, validation; validate(); train_step().
    EXPECT_EQ(model->was_on, std::vector<bool>(6, true));
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(Deterministic, LeavesTheSettingUnchangedByDefault) {
  at::globalContext().setDeterministicAlgorithms(true, true);
  const auto model = std::make_shared<Puts>();
  model->puts = false;
  EXPECT_EQ(error_with("false", model), "(no error)");
  EXPECT_EQ(model->was_on,
            std::vector<bool>(7, true));  // sanity check, two epochs of two steps and one batch
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(Deterministic, RefusesOtherWords) {
  const std::string error = error_text<ConfigError>([] { Trainer({.deterministic = "yes"}); });
  EXPECT_NE(error.find("\"false\", \"true\", \"warn\""), std::string::npos) << error;
}

}  // namespace
}  // namespace kindling
