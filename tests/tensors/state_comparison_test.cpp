#include "kindling/tensors/state_comparison.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <limits>

#include "kindling/device/transfer_counts.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/parameters.h"
#include "support/device_under_test.h"

namespace kindling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

StateComparison::Difference between(const at::Tensor& a, const at::Tensor& b) {
  const StateComparison comparison = compare(StateDict{{{"x", a}}, {}}, StateDict{{{"x", b}}, {}});
  return comparison.differences.at(0);
}

class ComparedOnDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(ComparedOnDevice);

TEST_P(ComparedOnDevice, AModelAndItsCopyAreEqual) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2)};
  const auto there = copy_to(*net, device_);
  const StateComparison comparison = compare(*there, *net);
  EXPECT_TRUE(comparison.is_equal());
  EXPECT_EQ(comparison.differences.size(), 7u);
  EXPECT_EQ(comparison.text(), "7 tensors compared, 0 different");
}

TEST_P(ComparedOnDevice, OneChangedElementIsFound) {
  torch::nn::Sequential net{torch::nn::Linear(3, 2)};
  set_parameter(*net, "0.bias", at::tensor({1.0F, 2.0F}));
  const auto there = copy_to(*net, device_);
  set_parameter(*there, "0.bias", at::tensor({1.0F, 2.5F}));
  const StateComparison comparison = compare(*there, *net);
  EXPECT_EQ(comparison.differences.at(1).name, "0.bias");
  EXPECT_EQ(comparison.differences.at(1).max_absolute, 0.5);
  EXPECT_EQ(comparison.differences.at(1).max_relative, 0.2);
  EXPECT_FALSE(comparison.is_equal());
  EXPECT_FALSE(comparison.is_equal(0.4999));
  EXPECT_TRUE(comparison.is_equal(0.5));
  EXPECT_EQ(comparison.text(), "2 tensors compared, 1 different\n  0.bias: max |a - b| 0.5, relative 0.2");
}

TEST_P(ComparedOnDevice, ResultsComeInOneTransfer) {
  if (device_.is_cpu()) GTEST_SKIP() << "nothing is transferred";
  torch::nn::Sequential net{torch::nn::Linear(3, 2), torch::nn::Linear(2, 4)};
  const auto a = copy_to(*net, device_), b = copy_to(*net, device_);
  const TransferCounts before = transfer_counts();
  EXPECT_TRUE(compare(*a, *b).is_equal());
  EXPECT_EQ(transfer_counts() - before,
            (TransferCounts{0, 0, 1, 96, 1}));  // four tensors, three doubles each
}

TEST_P(ComparedOnDevice, ValuesOfEveryKindCount) {
  const auto there = [&](const at::Tensor& tensor) { return tensor.to(device_); };
  EXPECT_EQ(between(there(at::zeros({2}, at::kBool)), at::ones({2}, at::kBool)).max_absolute, 1);
  EXPECT_EQ(between(there(at::tensor({3, 200}, at::kByte)), at::tensor({5, 200}, at::kByte)).max_absolute, 2);
  const std::int64_t large = std::int64_t{1} << 60;  // a double cannot tell them apart
  EXPECT_EQ(between(there(at::tensor({large})), at::tensor({large + 1})).max_absolute, 1);
  EXPECT_EQ(between(there(at::tensor({kNaN, 1.F})), at::tensor({kNaN, 1.F})).max_absolute, 0);
  EXPECT_EQ(between(there(at::tensor({kNaN})), at::tensor({1.F})).max_absolute, kInfinity);
  EXPECT_EQ(between(there(at::full({1}, kInfinity)), at::full({1}, kInfinity)).max_absolute, 0);
  EXPECT_EQ(between(there(at::full({1}, kInfinity)), at::full({1}, -kInfinity)).max_relative, kInfinity);
  EXPECT_EQ(between(there(at::empty({0, 3})), at::empty({0, 3})).max_absolute, 0);
  EXPECT_EQ(between(there(at::scalar_tensor(2.0)), at::scalar_tensor(2.5)).max_absolute, 0.5);
}

TEST_P(ComparedOnDevice, ElementsBeyondTheToleranceAreCounted) {
  const auto count = [&](const at::Tensor& a, const at::Tensor& b, Tolerance tolerance) {
    return compare({{{"x", a.to(device_)}}, {}}, {{{"x", b}}, {}}, tolerance).differences.at(0).num_different;
  };
  const at::Tensor a = at::tensor({1.0, 100.0, 0.0, 8.0}), b = at::tensor({1.5, 101.0, 0.0, 8.0});
  EXPECT_EQ(count(a, b, {}), 2);
  EXPECT_EQ(count(a, b, {.absolute = 0.5}), 1);
  EXPECT_EQ(count(a, b, {.relative = 0.01}), 1);  // of 101, the larger one
  EXPECT_EQ(count(a, b, {.relative = 0.0049, .absolute = 0.5}), 1);
  EXPECT_EQ(count(a, b, {.relative = 0.005, .absolute = 0.5}), 0);
  const at::Tensor odd = at::tensor({double{kNaN}, kInfinity, 1.0});
  EXPECT_EQ(count(odd, odd, {}), 0);
  EXPECT_EQ(count(odd, at::tensor({1.0, -kInfinity, double{kNaN}}), {.relative = 1, .absolute = 1}), 3);
  EXPECT_EQ(count(at::empty({0}), at::empty({0}), {}), 0);
}

TEST(StateComparison, NamesWhatCannotBeCompared) {
  const StateDict a{{{"both", at::ones({2})}, {"shape", at::ones({2})}, {"gone", at::ones({1})}}, {}};
  const StateDict b{
      {{"shape", at::ones({2, 1})}, {"both", at::ones({2}, at::kDouble)}, {"new", at::ones({1})}}, {}};
  const StateComparison comparison = compare(a, b);
  EXPECT_FALSE(comparison.is_equal(kInfinity));
  EXPECT_EQ(comparison.text(),
            "0 tensors compared, 0 different\n"
            "  both: Float [2] in a, Double [2] in b\n"
            "  shape: Float [2] in a, Float [2, 1] in b\n"
            "  gone: only in a\n"
            "  new: only in b");
}

TEST(StateComparison, LargestDifferenceComesFirst) {
  const StateDict a{{{"x", at::ones({2})}, {"y", at::ones({2})}}, {}};
  const StateDict b{{{"x", at::full({2}, 1.5)}, {"y", at::full({2}, 3.F)}}, {}};
  const std::string text = compare(a, b).text();
  EXPECT_LT(text.find("  y: max |a - b| 2"), text.find("  x: max |a - b| 0.5")) << text;
}

}  // namespace
}  // namespace kindling
