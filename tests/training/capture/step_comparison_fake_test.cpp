// Differences detected between two runs of a step, on the CPU and on a device.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>

#include "fake_accelerator.h"
#include "training/capture/step_comparison.h"

namespace kindling {
namespace {

constexpr RunTolerance kThousandth{.relative = 1e-3, .of_all = 1e-2};

class StepComparisons : public testing::TestWithParam<bool> {
 protected:
  Device device() const { return GetParam() ? Device(fake::device()) : cpu(); }
  at::Tensor numbers(std::vector<double> values) const { return at::tensor(values, at::kFloat).to(device()); }
  StepComparison::Run run() const {
    return {.results = {numbers({1, 2}), numbers({4, 0}), {}},
            .changes = {numbers({3})},
            .num_gradients = 2,
            .random = {at::arange(4)}};
  }
  // Compares the first run with a second one, which a test modifies.
  bool are_same(const std::function<void(StepComparison::Run&)>& change, bool may_be_same = true) {
    StepComparison::Run second = run();
    change(second);
    comparison_.keep(run());
    comparison_.compare(second, may_be_same);
    return told();
  }
  bool told() {
    EXPECT_TRUE(comparison_.is_under_way());
    if (!device().is_cpu()) at::accelerator::synchronizeDevice(0);
    const std::optional<bool> answer = comparison_.answer();
    EXPECT_FALSE(comparison_.is_under_way());
    EXPECT_EQ(comparison_.answer(), std::nullopt) << "it is told once";
    return answer.value();
  }

  StepComparison comparison_{device(), kThousandth};
};

TEST_P(StepComparisons, DetectDifferences) {
  using Run = StepComparison::Run;
  EXPECT_TRUE(are_same([](Run&) {}));
  EXPECT_FALSE(are_same([](Run&) {}, /*may_be_same=*/false));
  EXPECT_FALSE(are_same([&](Run& run) { run.results[0] = numbers({1, 2.5}); }));
  EXPECT_FALSE(are_same([&](Run& run) { run.changes[0] = numbers({3.5}); }));
  EXPECT_FALSE(are_same([](Run& run) { run.random[0] = at::arange(1, 5); }));
  EXPECT_FALSE(are_same([&](Run& run) { run.results[2] = numbers({0}); })) << "there is a gradient more";
  EXPECT_FALSE(are_same([](Run& run) { run.results[1] = at::Tensor(); }));
  EXPECT_FALSE(are_same([](Run& run) { run.changes.clear(); }));
  EXPECT_FALSE(are_same([](Run& run) { run.results[1] = run.results[1].view({2, 1}); }));
  EXPECT_FALSE(are_same([](Run& run) { run.results[1] = run.results[1].to(at::kDouble); }));
  EXPECT_TRUE(are_same([](Run&) {})) << "what differed before is forgotten";
}

TEST_P(StepComparisons, AreBitwiseOnTheCpuAndCloseOnADevice) {
  using Run = StepComparison::Run;
  const auto are_close = [&] { return are_same([&](Run& run) { run.results[0] = numbers({1, 2.001}); }); };
  EXPECT_EQ(are_close(), GetParam());
  // Gradients are compared relative to the largest number of all gradients; other results are not.
  EXPECT_EQ(are_same([&](Run& run) { run.results[1] = numbers({4, 0.03}); }), GetParam());
  EXPECT_FALSE(are_same([&](Run& run) { run.results[0] = numbers({1.03, 2}); }));
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  EXPECT_EQ(are_close(), GetParam());
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_FALSE(are_close());
  at::globalContext().setDeterministicAlgorithms(false, false);
}

// As the trainer does with buffers, before the step itself writes to them.
TEST_P(StepComparisons, KeepRevertedChanges) {
  at::Tensor buffer = numbers({3});
  StepComparison::Run run_of = run();
  run_of.changes = {buffer};
  comparison_.keep(run_of);
  buffer.fill_(1);  // as it was
  buffer.fill_(4);  // by the second run
  comparison_.compare(run_of, true);
  EXPECT_FALSE(told());
  comparison_.keep(run_of);
  buffer.fill_(1);
  buffer.fill_(4);
  comparison_.compare(run_of, true);
  EXPECT_TRUE(told());
}

TEST_P(StepComparisons, ForgetDroppedComparisons) {
  StepComparison::Run other = run();
  other.results[0] = numbers({7, 7});
  comparison_.keep(run());
  comparison_.compare(other, true);
  comparison_.drop();
  EXPECT_FALSE(comparison_.is_under_way());
  EXPECT_EQ(comparison_.answer(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(, StepComparisons, testing::Bool(),
                         [](const auto& info) { return info.param ? "OnADevice" : "OnTheCpu"; });

}  // namespace
}  // namespace kindling
