#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "device/float32_products.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/device/device_memory.h"
#include "measurements/measured_work.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

struct MatmulPrecision {
  std::string name;
  at::ScalarType dtype;
  const char* float32;  // the value for Float32Products
  // Relative to the largest element of a product of 64 terms: their rounding to 24, 11 and 8 bits, with a
  // margin.
  double tolerance;
};

const MatmulPrecision kFloat32{"fp32", at::kFloat, "highest", 1e-5};
const MatmulPrecision kTf32{"tf32", at::kFloat, "high", 4e-3};
const MatmulPrecision kBfloat16{"bf16", at::kBFloat16, "highest", 3e-2};

// One device in one precision.
struct MatmulSeries {
  Device device;
  MatmulPrecision precision;

  std::string label() const { return device.str() + " " + precision.name; }
  at::TensorOptions tensor() const { return at::dtype(precision.dtype).device(device); }
};

// True if float32 products really use TF32 when it is requested; tested with numbers that TF32 cannot
// represent.
bool has_tf32(Device device) {
  const Float32Products products("high");
  constexpr std::int64_t n = 256;         // large enough for a kernel that uses it
  constexpr float number = 1 + 0x1p-13f;  // 13 fraction bits
  const auto options = at::dtype(at::kFloat).device(device);
  const at::Tensor product = at::mm(at::full({n, n}, number, options), at::eye(n, options));
  return product.ne(number).any().item<bool>();
}

// Returns the lines of LibTorch's description that name a CPU matrix library: "Intel(R) oneAPI Math Kernel
// Library Version 2024.2-Product Build 20240605; Intel(R) MKL-DNN v3.12.0".
std::string cpu_libraries() {
  std::istringstream lines(at::show_config());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Math Kernel Library") == std::string::npos && line.find("MKL-DNN") == std::string::npos)
      continue;
    line.erase(0, line.find_first_not_of(" -"));
    line.erase(std::min({line.find(" for "), line.find(" (Git"), line.size()}));
    text += (text.empty() ? "" : "; ") + line;
  }
  return text.empty() ? "LibTorch's own" : text;
}

std::string matrix_library(Device device) {
  if (device.is_cpu()) return cpu_libraries();
  if (!device.is_cuda()) return "of " + device.str();
  std::ostringstream text;
  text << at::globalContext().blasPreferredBackend();
  return text.str().substr(text.str().rfind(':') + 1);  // at::BlasBackend::Cublas
}

// Returns the error of a small product against float64.
double checked_error(const MatmulSeries& series) {
  const at::Tensor a = noise({64, 64}, series.tensor(), 1), b = noise({64, 64}, series.tensor(), 2);
  const at::Tensor product = at::mm(a, b).cpu().to(at::kDouble);
  const at::Tensor exact = at::mm(a.cpu().to(at::kDouble), b.cpu().to(at::kDouble));
  const double error = ((product - exact).abs().max() / exact.abs().max()).item<double>();
  if (!(error <= series.precision.tolerance))
    throw Error({.place = series.precision.name + " product on " + series.device.str(),
                 .found = "its error is " + number_text(error) + " of its largest element",
                 .wanted = "at most " + number_text(series.precision.tolerance)});
  return error;
}

// Half of the free memory, for three matrices.
bool fits(const MatmulSeries& series, std::int64_t n) {
  const auto bytes = 3 * n * n * static_cast<std::int64_t>(c10::elementSize(series.precision.dtype));
  return bytes <= device_memory(series.device).free_bytes / 2;
}

Timing time_product(const MatmulSeries& series, std::int64_t n, const TimingOptions& timing) {
  const at::Tensor a = noise({n, n}, series.tensor(), 1), b = noise({n, n}, series.tensor(), 2);
  at::Tensor product = at::empty({n, n}, series.tensor());
  return time_calls(
      {series.device}, [&] { at::mm_out(product, a, b); }, timing);
}

// Returns the reason why the series ended.
const char* add_points(const MatmulSeries& series, const MatmulOptions& options, const TimingOptions& timing,
                       BenchReport& report) {
  const BenchRow device = fields_of(series.device, "device");
  const auto start = std::chrono::steady_clock::now();
  const auto calls = static_cast<double>(timing.warm_up + timing.repeats);
  report.curve(series.label());
  double last_s = 0;
  for (std::int64_t n = options.min_n; n <= options.max_n; n *= 2) {
    if (!fits(series, n)) return "memory";
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // Doubling the size takes eight times the work.
    if (spent + 8 * last_s * calls > options.time_budget_s) return "time budget";
    const Timing time = time_product(series, n, timing);
    last_s = time.median_s;
    const auto size = static_cast<double>(n);
    const double tflops = 2 * size * size * size / time.median_s / 1e12;
    report.add(joined({device,
                       {{"precision", series.precision.name, "precision"}, {"n", n, "n"}},
                       fields_of(time),
                       {{"tflops", tflops, "TFLOP/s"}}}),
               series.label(), size, tflops);
  }
  return "max n";
}

// Notes the library, and why the series ended.
void measure_series(const MatmulSeries& series, const MatmulOptions& options, const TimingOptions& timing,
                    BenchReport& report) {
  const Float32Products float32(series.precision.float32);
  const double error = checked_error(series);
  const char* ended_by = add_points(series, options, timing, report);
  const std::string library = matrix_library(series.device), name = series.precision.name;
  const char* tf32 = name == "tf32" ? "on" : "off";
  if (name == "fp32") report.notes.push_back(series.device.str() + ": matrix library " + library);
  report.notes.push_back(series.label() + ": TF32 " + tf32 + ", 64 x 64 off by " + rounded_text(error) +
                         " of its largest element, ended by: " + ended_by);
  report.summary["series"].push_back({{"device", series.device.str()},
                                      {"precision", name},
                                      {"tf32", tf32},
                                      {"library", library},
                                      {"error", error},
                                      {"ended_by", ended_by}});
}

// Compares a GPU's series with the CPU's; TF32 is compared with the CPU's fp32.
void add_crossovers(const std::vector<MatmulSeries>& all, BenchReport& report) {
  std::string line = "crossover, the n from which the GPU stays faster:";
  nlohmann::ordered_json& sizes = report.summary["crossover"];
  for (const MatmulSeries& card : all)
    for (const MatmulSeries& host : all) {
      const std::string& name = card.precision.name;
      if (card.device.is_cpu() || host.label() != "cpu " + (name == "tf32" ? "fp32" : name)) continue;
      const auto n = crossover(report.curve(host.label()), report.curve(card.label()));
      sizes[name] = n ? nlohmann::ordered_json(*n) : nullptr;
      line += " " + name + " " + (n ? std::to_string(*n) : "-");
    }
  report.notes.insert(report.notes.begin(), sizes.is_null() ? line + " -" : line);
}

}  // namespace

BenchReport measure_matmul(const std::vector<Device>& devices, const MatmulOptions& options,
                           TimingOptions timing) {
  BenchReport report{.title = "products of two n x n matrices",
                     .chart = {.title = "Matrix products",
                               .xlabel = "n",
                               .ylabel = "TFLOP/s",
                               .xscale = AxisScale::log,
                               .yscale = AxisScale::log},
                     .summary = {{"crossover", nullptr}, {"series", nlohmann::ordered_json::array()}}};
  std::vector<MatmulSeries> all;
  for (const Device device : devices) {
    all.push_back({device, kFloat32});
    if (has_tf32(device)) all.push_back({device, kTf32});
    all.push_back({device, kBfloat16});
  }
  MatmulOptions of_one = options;
  of_one.time_budget_s /= static_cast<double>(all.size());
  timing.min_seconds = 2e-3;
  for (const MatmulSeries& series : all) measure_series(series, of_one, timing, report);
  add_crossovers(all, report);
  report.note_missing_card();
  return report;
}

std::optional<std::int64_t> crossover(const Curve& host, const Curve& card) {
  std::optional<std::int64_t> from;
  for (std::size_t i = 0; i < card.x.size(); ++i) {
    const auto on_host = std::ranges::find(host.x, card.x[i]);
    if (on_host == host.x.end()) continue;
    const bool faster = card.y[i] > host.y[static_cast<std::size_t>(on_host - host.x.begin())];
    from = faster ? from.value_or(static_cast<std::int64_t>(card.x[i])) : std::optional<std::int64_t>{};
  }
  return from;
}

}  // namespace kindling
