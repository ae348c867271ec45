#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "measurements/measurements.h"
#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class MatmulMeasurement : public OnDevice {
 protected:
  BenchReport measure(const MatmulOptions& options = {.max_n = 64, .time_budget_s = 60}) const {
    return measure_matmul({device_}, options, {.repeats = 2});
  }
};
KINDLING_RUN_ON_DEVICES(MatmulMeasurement);

TEST_P(MatmulMeasurement, MeasuresEverySizeInFloat32AndBfloat16) {
  const BenchReport report = measure();
  const auto& series = report.summary["series"];
  ASSERT_GE(series.size(), 2u);
  if (!device_.is_cuda()) {
    EXPECT_EQ(series.size(), 2u);  // no TF32
  }
  EXPECT_EQ(series.front()["precision"], "fp32");
  EXPECT_EQ(series.back()["precision"], "bf16");
  for (const auto& each : series) EXPECT_EQ(each["ended_by"], "max n");
  ASSERT_EQ(report.rows.size(), 3 * series.size());
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto result = json_of(report.rows[i]);
    EXPECT_EQ(result["device"], device_.str());
    EXPECT_EQ(result["precision"], series[i / 3]["precision"]);
    EXPECT_EQ(result["n"], 16 << i % 3);
    EXPECT_EQ(result["repeats"], 2);
    EXPECT_GT(result["min_s"], 0);
    EXPECT_LE(result["min_s"], result["median_s"]);
    EXPECT_LE(result["median_s"], result["max_s"]);
  }
}

TEST_P(MatmulMeasurement, DrawsACurveForEachPrecision) {
  const BenchReport report = measure();
  EXPECT_EQ(report.chart.curves.size(), report.summary["series"].size());
  EXPECT_EQ(report.chart.curves.front().label, device_.str() + " fp32");
  for (const Curve& curve : report.chart.curves) {
    EXPECT_EQ(curve.x, (std::vector<double>{16, 32, 64})) << curve.label;
    for (const double tflops : curve.y) EXPECT_GT(tflops, 0);
  }
}

// float32 has a mantissa of 24 bits, bfloat16 one of 8: neither is exact, and bfloat16 is at least 100 times
// as far off.
TEST_P(MatmulMeasurement, ChecksAProductAgainstFloat64) {
  const BenchReport report = measure();
  const double fp32 = report.summary["series"].front()["error"];
  const double bf16 = report.summary["series"].back()["error"];
  EXPECT_GT(fp32, 0);
  EXPECT_LT(fp32, 1e-5);
  EXPECT_GT(bf16, 100 * fp32);
  EXPECT_LT(bf16, 3e-2);
}

TEST_P(MatmulMeasurement, LeavesSettingsAndRandomStateAsTheyWere) {
  using B = at::Float32Backend;
  at::Context& context = at::globalContext();
  // LibTorch's defaults, none of which a measurement sets.
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
  measure();
  EXPECT_TRUE(same(at::rand({3}, at::device(device_)), expected));
  EXPECT_EQ(settings(), before);
}

TEST_P(MatmulMeasurement, StopsAtTheTimeBudget) {
  const BenchReport report = measure({.time_budget_s = 1e-9});
  EXPECT_TRUE(report.rows.empty());
  for (const auto& series : report.summary["series"]) EXPECT_EQ(series["ended_by"], "time budget");
}

// A matrix of 2^24 rows and columns is a petabyte of float32.
TEST_P(MatmulMeasurement, StopsWhenMemoryRunsOut) {
  const BenchReport report = measure({.min_n = 1 << 24, .max_n = 1 << 24});
  EXPECT_TRUE(report.rows.empty());
  for (const auto& series : report.summary["series"]) EXPECT_EQ(series["ended_by"], "memory");
}

Curve speeds(const std::vector<double>& y) {
  Curve curve{.y = y};
  for (std::size_t i = 0; i < y.size(); ++i) curve.x.push_back(16 << i);
  return curve;
}

TEST(MatmulCrossover, ReturnsTheSizeFromWhichTheGpuStaysFaster) {
  // At n = 32 the GPU is faster once, but not from there on.
  EXPECT_EQ(crossover(speeds({9, 3, 3, 1, 1}), speeds({5, 4, 2, 3, 3})), 128);
  EXPECT_EQ(crossover(speeds({1, 1}), speeds({2, 2})), 16);
  EXPECT_EQ(crossover(speeds({1, 1}), speeds({2, 0.5})), std::nullopt);
  EXPECT_EQ(crossover(speeds({1}), speeds({0.5, 9})), std::nullopt);  // 32 was measured on one only
}

}  // namespace
}  // namespace kindling
