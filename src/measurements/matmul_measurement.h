#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measurements/timing.h"

namespace kindling {

// Exercise 1 of the textbook: products of two n×n matrices, from small to large.
struct MatmulOptions {
  std::vector<Device> devices{};
  std::int64_t min_n = 16, max_n = 16384;  // n doubles from the first to the second
  double time_budget_s = 6;                // of all series together, about
  TimingOptions timing{.min_seconds = 2e-3};
};

struct MatmulPoint {
  std::int64_t n = 0;
  Timing time{};

  double tflops() const;  // 2n³ / median, in 10¹² per second
};

// One device in one precision.
struct MatmulSeries {
  Device device = cpu();
  std::string precision{};  // "fp32", "tf32", "bf16"
  double error = 0;         // of a small product against float64, by the largest element; checked
  std::vector<MatmulPoint> points{};
  std::string ended_by{};  // "max n", "time budget", "memory"
};

// fp32, TF32 where the device has it, bf16. Throws Error when a product is wrong. Settings and random state
// of the process are afterwards what they were.
std::vector<MatmulSeries> measure_matmul(const MatmulOptions& options);

// The smallest n, measured on both, from which on `card` is the faster one; nothing when it is not.
std::optional<std::int64_t> crossover(const MatmulSeries& host, const MatmulSeries& card);

}  // namespace kindling
