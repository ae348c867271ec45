// The dispatch keys of LibTorch that Kindling borrows: free until they are needed, and left to another
// library that has registered a fallback for one of them first.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <kindling/base/log.h>
#include <kindling/data/digits.h>
#include <kindling/models/mlp.h>
#include <kindling/training/trainer.h>
#include <torch/library.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

namespace kindling {
namespace {

constexpr auto kStepKey = c10::DispatchKey::Fake, kExportKey = c10::DispatchKey::DeferredInit,
               kBatchNormKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

bool is_taken(c10::DispatchKey key) {
  return c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key);
}

// What main() finds before it takes the keys as another library would.
bool were_free = false;

void take(c10::DispatchKey key) {
  static std::vector<std::unique_ptr<torch::Library>> taken;
  taken.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "_", key, __FILE__, __LINE__));
  taken.back()->fallback(torch::CppFunction::makeFallthrough());
}

struct WatchedFit {
  std::vector<at::Tensor> weights;
  std::vector<std::string> warnings;
};

WatchedFit watched_fit(const std::string& step_graph) {
  WatchedFit fit;
  configure_log({});
  set_log_observer([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::warning) fit.warnings.push_back(line);
  });
  torch::manual_seed(1);
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  Digits digits({.batch_size = 32});
  Trainer trainer({.max_epochs = 1, .step_graph = step_graph, .limit_train_batches = 12});
  trainer.fit(model, digits);
  set_log_observer({});
  for (const at::Tensor& weight : model->parameters()) fit.weights.push_back(weight.detach());
  return fit;
}

TEST(DispatchKeys, AreFreeAfterLoading) { EXPECT_TRUE(were_free); }

// "auto" and "on" alike; the warning is the process's, not the fit's.
TEST(DispatchKeys, WarnOnceAndRunStepsEagerlyWhereTaken) {
  const WatchedFit eager = watched_fit("off"), first = watched_fit("auto"), second = watched_fit("on");
  EXPECT_TRUE(eager.warnings.empty());
  ASSERT_EQ(first.warnings.size(), 1U);
  EXPECT_NE(first.warnings[0].find("dispatch key Fake"), std::string::npos) << first.warnings[0];
  EXPECT_TRUE(second.warnings.empty()) << second.warnings[0];
  for (std::size_t i = 0; i < eager.weights.size(); ++i) {
    EXPECT_TRUE(first.weights[i].equal(eager.weights[i])) << "parameter " << i;
    EXPECT_TRUE(second.weights[i].equal(eager.weights[i])) << "parameter " << i;
  }
}

}  // namespace
}  // namespace kindling

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using namespace kindling;
  were_free = !is_taken(kStepKey) && !is_taken(kExportKey) && !is_taken(kBatchNormKey);
  for (const c10::DispatchKey key : {kStepKey, kExportKey, kBatchNormKey}) take(key);
  return RUN_ALL_TESTS();
}
