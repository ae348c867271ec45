#include "training/inspect/host_wait_watch.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <string>
#include <vector>

#include "kindling/base/log.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/models/linear_regression.h"
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

struct WaitingCall {
  const char* name;
  void (*call)(const at::Tensor& x);
};

class WaitingOperator : public testing::TestWithParam<WaitingCall> {};

TEST_P(WaitingOperator, IsDetected) {
  const at::Tensor x = at::ones({1}, at::kLong);
  const HostWaitWatch watch;
  GetParam().call(x);
  EXPECT_EQ(watch.found(), std::string("aten::") + GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(
    All, WaitingOperator,
    testing::Values(WaitingCall{"item", [](const at::Tensor& x) { (void)x.item(); }},
                    WaitingCall{"_local_scalar_dense",
                                [](const at::Tensor& x) { (void)at::_local_scalar_dense(x); }},
                    WaitingCall{"is_nonzero", [](const at::Tensor& x) { (void)x.is_nonzero(); }},
                    WaitingCall{"equal", [](const at::Tensor& x) { (void)x.equal(x); }},
                    WaitingCall{"nonzero", [](const at::Tensor& x) { (void)x.nonzero(); }},
                    WaitingCall{"masked_select", [](const at::Tensor& x) { (void)x.masked_select(x.gt(0)); }},
                    WaitingCall{"_unique2", [](const at::Tensor& x) { (void)at::_unique2(x); }},
                    WaitingCall{"bincount", [](const at::Tensor& x) { (void)x.bincount(); }},
                    WaitingCall{"allclose", [](const at::Tensor& x) { (void)x.allclose(x); }}),
    [](const auto& info) { return info.param.name; });

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

TEST(HostWaitWatch, WarnsOnceAboutAStepThatWaits) {
  const auto warnings = warnings_of_fit(std::make_shared<Impatient>());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("training_step calls aten::item"), std::string::npos) << warnings[0];
}

TEST(HostWaitWatch, IsSilentForAStepThatDoesNotWait) {
  EXPECT_TRUE(warnings_of_fit(std::make_shared<LinearRegression>()).empty());
}

}  // namespace
}  // namespace kindling
