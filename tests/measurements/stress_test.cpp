#include "measurements/stress.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "device/deterministic_operators.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

class Stress : public OnDevice {};
KINDLING_RUN_ON_TRAINER_DEVICES(Stress);

TEST_P(Stress, FindsNoFaultInASoundDevice) {
  DeterministicOperators operators(device_.is_cpu() ? "false" : "warn");
  const DeterministicOperators::Scope scope(operators);
  const StressResult steps = stress(stress_steps(device_), 0),
                     memory = stress(stress_memory(device_, 1 << 20), 0);
  EXPECT_EQ(steps.num_rounds, 2);
  EXPECT_EQ(steps.num_wrong, 0);
  EXPECT_EQ(memory.num_wrong, 0);
}

TEST(StressOfFaults, NumbersTheFirstWrongRound) {
  int round = 0;
  const StressResult result = stress(
      [&] {
        ++round;
        return std::vector{
            at::zeros({4}).index_fill_(0, at::zeros({1}, at::kLong), round == 2 ? 1e-30 : 0.0)};
      },
      0);
  EXPECT_EQ(result.num_wrong, 1);
  EXPECT_EQ(result.first_wrong, 2);
}

}  // namespace
}  // namespace kindling
