#include "measurements/matmul_measurement.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "measurements/float32_products.h"
#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class MatmulMeasurement : public OnDevice {
 protected:
  MatmulOptions small_options() const {
    return {.devices = {device_}, .max_n = 64, .time_budget_s = 60, .timing = {.repeats = 2}};
  }
};
KINDLING_RUN_ON_DEVICES(MatmulMeasurement);

TEST_P(MatmulMeasurement, MeasuresEverySizeInFloat32AndBfloat16) {
  const auto all = measure_matmul(small_options());
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all.front().precision, "fp32");
  EXPECT_EQ(all.back().precision, "bf16");
  for (const MatmulSeries& series : all) {
    EXPECT_EQ(series.device, device_);
    EXPECT_EQ(series.ended_by, "max n");
    ASSERT_EQ(series.points.size(), 3u);
    std::int64_t n = 16;
    for (const MatmulPoint& point : series.points) {
      EXPECT_EQ(point.n, n);
      EXPECT_EQ(point.time.repeats, 2);
      EXPECT_GT(point.time.min_s, 0);
      EXPECT_LE(point.time.min_s, point.time.median_s);
      EXPECT_LE(point.time.median_s, point.time.max_s);
      n *= 2;
    }
  }
}

// float32 has a mantissa of 24 bits, bfloat16 one of 8: neither is exact, and bfloat16 is at least 100 times
// as far off.
TEST_P(MatmulMeasurement, ChecksAProductAgainstFloat64) {
  const auto all = measure_matmul(small_options());
  EXPECT_GT(all.front().error, 0);
  EXPECT_LT(all.front().error, 1e-5);
  EXPECT_GT(all.back().error, 100 * all.front().error);
  EXPECT_LT(all.back().error, 3e-2);
}

TEST_P(MatmulMeasurement, LeavesSettingsAndRandomStateAsTheyWere) {
  using B = at::Float32Backend;
  at::Context& context = at::globalContext();
  // LibTorch's defaults: no value that a measurement sets.
  for (const B backend : {B::CUDA, B::MKLDNN})
    context.setFloat32Precision(backend, at::Float32Op::MATMUL, at::Float32Precision::NONE);
  const auto settings = [&] {
    return std::tuple(context.float32MatmulPrecision(),
                      context.float32Precision(B::CUDA, at::Float32Op::MATMUL),
                      context.float32Precision(B::MKLDNN, at::Float32Op::MATMUL), context.allowTF32CuBLAS());
  };
  const auto before = settings();
  at::Generator random = context.defaultGenerator(device_);
  random.set_current_seed(5);
  const at::Tensor expected = at::rand({3}, at::device(device_)).cpu();
  random.set_current_seed(5);
  measure_matmul(small_options());
  EXPECT_TRUE(same(at::rand({3}, at::device(device_)), expected));
  EXPECT_EQ(settings(), before);
}

TEST_P(MatmulMeasurement, StopsWhenTheTimeIsSpent) {
  MatmulOptions options = small_options();
  options.time_budget_s = 1e-9;
  for (const MatmulSeries& series : measure_matmul(options)) {
    EXPECT_TRUE(series.points.empty());
    EXPECT_EQ(series.ended_by, "time budget");
  }
}

// A matrix of 2^24 rows and columns is a petabyte of float32.
TEST_P(MatmulMeasurement, StopsWhereTheMemoryEnds) {
  MatmulOptions options = small_options();
  options.min_n = options.max_n = std::int64_t{1} << 24;
  for (const MatmulSeries& series : measure_matmul(options)) EXPECT_EQ(series.ended_by, "memory");
}

TEST_P(MatmulMeasurement, AllowsTf32OnlyWhileItIsAsked) {
  const auto before = at::globalContext().float32MatmulPrecision();
  {
    const Float32Products products(Float32Products::Precision::tf32);
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
  }
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), before);
  if (!device_.is_cuda()) {
    EXPECT_FALSE(has_tf32(device_));
  }
}

MatmulSeries series(const std::vector<double>& seconds) {
  MatmulSeries made;
  std::int64_t n = 16;
  for (const double s : seconds) {
    made.points.push_back({.n = n, .time = {.median_s = s}});
    n *= 2;
  }
  return made;
}

TEST(MatmulCrossover, IsTheSizeFromWhichTheCardStaysFaster) {
  // At n = 32 the card is faster once, but not yet for good.
  EXPECT_EQ(crossover(series({1, 4, 4, 9, 9}), series({2, 3, 5, 3, 3})), 128);
  EXPECT_EQ(crossover(series({1, 1}), series({0.5, 0.5})), 16);
  EXPECT_EQ(crossover(series({1, 1}), series({0.5, 2})), std::nullopt);
  EXPECT_EQ(crossover(series({1}), series({2, 0.1})), std::nullopt);  // 32 was measured on one only
}

TEST(MatmulPoint, CountsTwoOperationsPerTerm) {
  EXPECT_DOUBLE_EQ((MatmulPoint{.n = 1000, .time = {.median_s = 0.5}}.tflops()), 0.004);  // 2e9 in 0.5 s
}

}  // namespace
}  // namespace kindling
