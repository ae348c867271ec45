#include "measurements/matmul_measurement.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <chrono>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/device/host_info.h"
#include "measurements/float32_products.h"
#include "measurements/noise.h"

namespace kindling {
namespace {

struct MatmulPrecision {
  const char* name;
  at::ScalarType dtype;
  Float32Products::Precision float32;
  // Of the largest element of a product of 64 terms: their rounding to 24, 11 and 8 bits, with room.
  double tolerance;
};

constexpr MatmulPrecision kFloat32{"fp32", at::kFloat, Float32Products::Precision::full, 1e-5};
constexpr MatmulPrecision kTf32{"tf32", at::kFloat, Float32Products::Precision::tf32, 4e-3};
constexpr MatmulPrecision kBfloat16{"bf16", at::kBFloat16, Float32Products::Precision::full, 3e-2};

double checked_error(Device device, const MatmulPrecision& precision) {
  const auto options = at::dtype(precision.dtype).device(device);
  const at::Tensor a = noise({64, 64}, options, 1), b = noise({64, 64}, options, 2);
  const at::Tensor product = at::mm(a, b).cpu().to(at::kDouble);
  const at::Tensor exact = at::mm(a.cpu().to(at::kDouble), b.cpu().to(at::kDouble));
  const double error = ((product - exact).abs().max() / exact.abs().max()).item<double>();
  if (!(error <= precision.tolerance))
    throw Error({.place = std::string(precision.name) + " product on " + device.str(),
                 .found = "it is off by " + number_text(error) + " of its largest element",
                 .wanted = "at most " + number_text(precision.tolerance)});
  return error;
}

std::int64_t free_bytes(Device device) {
  if (device.is_cpu()) return host_info().memory_available_bytes;
  return static_cast<std::int64_t>(at::accelerator::getMemoryInfo(device.index()).first);
}

// Half of what is free, for three matrices.
bool fits(Device device, at::ScalarType dtype, std::int64_t n) {
  const auto bytes = 3 * n * n * static_cast<std::int64_t>(c10::elementSize(dtype));
  return bytes <= free_bytes(device) / 2;
}

MatmulPoint time_product(Device device, at::ScalarType dtype, std::int64_t n, const TimingOptions& timing) {
  const auto options = at::dtype(dtype).device(device);
  const at::Tensor a = noise({n, n}, options, 1), b = noise({n, n}, options, 2);
  at::Tensor product = at::empty({n, n}, options);
  return {n, time_calls(
                 {device}, [&] { at::mm_out(product, a, b); }, timing)};
}

MatmulSeries measure_series(Device device, const MatmulPrecision& precision, double budget_s,
                            const MatmulOptions& options) {
  const Float32Products float32(precision.float32);
  MatmulSeries series{.device = device,
                      .precision = precision.name,
                      .error = checked_error(device, precision),
                      .ended_by = "max n"};
  const auto start = std::chrono::steady_clock::now();
  const auto calls = static_cast<double>(options.timing.warm_up + options.timing.repeats);
  for (std::int64_t n = options.min_n; n <= options.max_n; n *= 2) {
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // Twice the size is eight times the work.
    const double next = series.points.empty() ? 0 : 8 * series.points.back().time.median_s * calls;
    const bool in_memory = fits(device, precision.dtype, n);
    if (!in_memory || spent + next > budget_s) {
      series.ended_by = in_memory ? "time budget" : "memory";
      break;
    }
    series.points.push_back(time_product(device, precision.dtype, n, options.timing));
  }
  return series;
}

}  // namespace

double MatmulPoint::tflops() const {
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / time.median_s / 1e12;
}

std::vector<MatmulSeries> measure_matmul(const MatmulOptions& options) {
  std::vector<std::pair<Device, const MatmulPrecision*>> planned;
  for (const Device device : options.devices) {
    planned.emplace_back(device, &kFloat32);
    if (has_tf32(device)) planned.emplace_back(device, &kTf32);
    planned.emplace_back(device, &kBfloat16);
  }
  std::vector<MatmulSeries> measured;
  for (const auto& [device, precision] : planned)
    measured.push_back(measure_series(device, *precision,
                                      options.time_budget_s / static_cast<double>(planned.size()), options));
  return measured;
}

std::optional<std::int64_t> crossover(const MatmulSeries& host, const MatmulSeries& card) {
  std::optional<std::int64_t> from;
  for (const MatmulPoint& on_card : card.points)
    for (const MatmulPoint& on_host : host.points) {
      if (on_host.n != on_card.n) continue;
      const bool faster = on_card.time.median_s < on_host.time.median_s;
      from = faster ? from.value_or(on_card.n) : std::optional<std::int64_t>{};
    }
  return from;
}

}  // namespace kindling
