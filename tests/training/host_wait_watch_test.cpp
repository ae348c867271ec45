#include "training/host_wait_watch.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <string>
#include <vector>

#include "kindling/base/log.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/nn/linear_regression.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

TEST(HostWaitWatch, NamesTheFirstOperatorThatWaits) {
  const at::Tensor x = at::ones({3});
  const HostWaitWatch watch;
  (void)(x + x).sum();
  EXPECT_EQ(watch.found(), "");
  (void)x.nonzero();
  (void)x.sum().item<float>();
  EXPECT_EQ(watch.found(), "aten::nonzero");
}

TEST(HostWaitWatch, EndsWithItsScope) {
  { const HostWaitWatch watch; }
  EXPECT_EQ(at::ones({1}).item<float>(), 1);  // a callback left behind would write into what is gone
  const HostWaitWatch second;
  EXPECT_EQ(second.found(), "");
}

// Reads its loss on the host, as a hand-written loop does.
struct Impatient : LinearRegression {
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = LinearRegression::training_step(batch);
    last = loss.item<float>();
    return loss;
  }
  float last = 0;
};

std::vector<std::string> warnings_of_fit(const std::shared_ptr<Module>& model) {
  std::vector<std::string> warnings;
  configure_log({.level = LogLevel::warning, .file = {}});
  set_log_observer([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  SyntheticRegression data;
  Trainer({.max_epochs = 2}).fit(model, data);
  set_log_observer({});
  return warnings;
}

TEST(HostWaitWatch, WarnsOnceOfAStepThatWaits) {
  const auto warnings = warnings_of_fit(std::make_shared<Impatient>());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("training_step calls aten::item"), std::string::npos) << warnings[0];
}

TEST(HostWaitWatch, IsSilentForAStepThatDoesNot) {
  EXPECT_TRUE(warnings_of_fit(std::make_shared<LinearRegression>()).empty());
}

}  // namespace
}  // namespace kindling
