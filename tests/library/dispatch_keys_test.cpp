// The LibTorch dispatch keys that Kindling uses: unregistered until needed, and left to another library that
// has registered a fallback first.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <kindling/base/error.h>
#include <kindling/distributed/process_group.h>
#include <kindling/interop/export_program.h>
#include <kindling/models/small_cnn.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "short_fit.h"

namespace kindling {
namespace {

constexpr auto kStepKey = c10::DispatchKey::Fake, kExportKey = c10::DispatchKey::DeferredInit,
               kBatchNormKey = c10::DispatchKey::TESTING_ONLY_GenericMode,
               kWideSumsKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

bool is_taken(c10::DispatchKey key) {
  return c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key);
}

// The state before main() registers the keys like another library.
bool were_free = false;

void take(c10::DispatchKey key) {
  static std::vector<std::unique_ptr<torch::Library>> taken;
  taken.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "_", key, __FILE__, __LINE__));
  taken.back()->fallback(torch::CppFunction::makeFallthrough());
}

TEST(DispatchKeys, AreFreeAfterLoading) { EXPECT_TRUE(were_free); }

// Same for "auto" and "on"; the warning is logged once per process, not per fit.
TEST(DispatchKeys, WarnOnceAndRunStepsEagerlyWhereTaken) {
  const ShortFit eager = short_fit("off", LogLevel::warning), first = short_fit("auto", LogLevel::warning),
                 second = short_fit("on", LogLevel::warning);
  EXPECT_EQ(eager.log, "");
  EXPECT_EQ(std::ranges::count(first.log, '\n'), 1) << first.log;
  EXPECT_NE(first.log.find("dispatch key Fake"), std::string::npos) << first.log;
  EXPECT_EQ(second.log, "");
  for (std::size_t i = 0; i < eager.weights.size(); ++i) {
    EXPECT_TRUE(first.weights[i].equal(eager.weights[i])) << "parameter " << i;
    EXPECT_TRUE(second.weights[i].equal(eager.weights[i])) << "parameter " << i;
  }
}

// Sums are then those of LibTorch.
TEST(DispatchKeys, WarnOnceWhereSumsStayIn16Bits) {
  std::string log;
  configure_log({.level = LogLevel::warning});
  set_log_observer([&](LogLevel, const std::string& line) { log += line + "\n"; });
  for (int fit = 0; fit < 2; ++fit) {
    Digits digits({.batch_size = 32});
    Trainer({.max_steps = 2, .precision = "bf16-mixed", .step_graph = "off"})
        .fit(std::make_shared<Mlp>(), digits);
  }
  set_log_observer({});
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_NE(log.find("dispatch key TESTING_ONLY_GenericWrapper"), std::string::npos) << log;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DispatchKeys, ExportNamesTheTakenKey) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  Mlp model(MlpOptions{.hidden = {4}});
  model.apply_init(Batch{torch::zeros({2, 1, 8, 8})});
  const std::string file = testing::TempDir() + "/taken_key.pt2";
  const std::string text = refusal_of([&] {
    export_program(model, Batch({torch::zeros({2, 1, 8, 8})}), {.path = file});
  });
  EXPECT_NE(text.find("dispatch key DeferredInit"), std::string::npos) << text;
  EXPECT_NE(text.find("a process that does not load that library"), std::string::npos) << text;
}

// Each of the two ranks refuses before it trains, so that neither waits for the other.
TEST(DispatchKeys, SyncBatchNormNamesTheTakenKey) {
  const auto groups = ProcessGroup::from_threads(2);
  std::vector<std::string> texts(groups.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    ranks.emplace_back([&, rank] {
      Digits digits({.batch_size = 32});
      Trainer trainer({.max_epochs = 1, .sync_batchnorm = true, .process_group = groups[rank]});
      texts[rank] = refusal_of([&] { trainer.fit(std::make_shared<SmallCnn>(), digits); });
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("dispatch key TESTING_ONLY_GenericMode"), std::string::npos) << text;
    EXPECT_NE(text.find("sync_batchnorm = false"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace kindling

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using namespace kindling;
  were_free = true;
  for (const c10::DispatchKey key : {kStepKey, kExportKey, kBatchNormKey, kWideSumsKey}) {
    were_free = were_free && !is_taken(key);
    take(key);
  }
  return RUN_ALL_TESTS();
}
