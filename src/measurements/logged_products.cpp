#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/move.h"
#include "measurements/measured_work.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

constexpr double kLargestDifference = 1e-4;

at::TensorOptions float_on(Device device) { return at::dtype(at::kFloat).device(device); }

std::vector<float> numbers_of(const at::Tensor& norms) {
  const at::Tensor host = move_to(norms, cpu());
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]}) / double{a[i]};
    largest = std::isnan(difference) ? difference : std::max(largest, difference);
  }
  return largest;
}

// The names, in the order of kWays.
constexpr std::array<const char*, 4> kWayNames{"one at a time to the host", "kept on the device, moved once",
                                               "preallocated", "one batched product"};

// Times are for all products, counts for one run.
void add_ways(Device device, const LoggedProductsOptions& options, const TimingOptions& timing,
              BenchReport& report) {
  const BenchRow device_fields = fields_of(device, "device");
  LoggedProducts products(device, options);
  const std::vector<float> expected = products.run(LoggedProducts::Way::one_at_a_time);
  double first_s = 0;
  for (const LoggedProducts::Way way : LoggedProducts::kWays) {
    const TransferCounts before = transfer_counts();
    const double difference = largest_difference(expected, products.run(way));
    const TransferCounts counts = transfer_counts() - before;
    if (!(difference <= kLargestDifference))
      throw Error({.place = "bench log on " + device.str(),
                   .found = "norms that must be equal differ by " + number_text(difference) + ", relative",
                   .wanted = "at most " + number_text(kLargestDifference)});
    const bool graph = way == LoggedProducts::Way::preallocated && products.has_graph();
    const Timing time = time_calls(
        {device}, [&] { products.run(way); }, timing);
    if (first_s == 0) first_s = time.median_s;
    const std::string name = kWayNames[static_cast<std::size_t>(way)];
    report.add(
        joined({device_fields,
                {{"variant", name, "variant", name + (graph ? ", device graph" : "")}, {"graph", graph}},
                fields_of(time),
                {{"", nullptr, "speed", rounded_text(first_s / time.median_s) + "x"}},
                fields_of(counts, {"host waits", "copies to host"}),
                {{"largest_difference", difference}}}),
        device.str(), static_cast<double>(way) + 1, time.median_s * 1e3);
  }
}

}  // namespace

LoggedProducts::LoggedProducts(Device device, const LoggedProductsOptions& options)
    : device_(device),
      a_(noise({options.num_products, options.n, options.n}, float_on(device), 1)),
      b_(noise({options.num_products, options.n, options.n}, float_on(device), 2)),
      as_(a_.unbind()),
      bs_(b_.unbind()),
      log_(device, options.num_products),
      product_(at::empty({options.n, options.n}, float_on(device))),
      norms_(at::empty({options.num_products}, float_on(device))),
      single_norms_(norms_.unbind()),
      graph_(record_work(device, [this] { into_norms(); })) {}

std::vector<float> LoggedProducts::run(Way way) {
  switch (way) {
    case Way::one_at_a_time:
      return one_at_a_time();
    case Way::kept:
      return kept();
    case Way::preallocated:
      graph_ ? graph_->replay() : into_norms();
      return numbers_of(norms_);
    case Way::batched:
      return numbers_of(at::linalg_vector_norm(at::bmm(a_, b_), 2, at::IntArrayRef{1, 2}));
  }
  return {};
}

std::vector<float> LoggedProducts::one_at_a_time() {
  std::vector<float> norms;
  TransferCounts& counts = transfer_counts();
  for (std::size_t i = 0; i < as_.size(); ++i) {
    norms.push_back(at::linalg_vector_norm(at::mm(as_[i], bs_[i])).item<float>());
    if (device_.is_cpu()) continue;
    ++counts.device_to_host_copies;
    counts.device_to_host_bytes += static_cast<std::int64_t>(sizeof(float));
    ++counts.host_waits;
  }
  return norms;
}

std::vector<float> LoggedProducts::kept() {
  log_.clear();
  const std::size_t column = log_.column("norm");
  for (std::size_t i = 0; i < as_.size(); ++i) {
    log_.mark(column, at::linalg_vector_norm(at::mm(as_[i], bs_[i])));
    log_.append({.global_step = static_cast<std::int64_t>(i), .batch = static_cast<std::int64_t>(i)});
  }
  log_.move_to_host();
  std::vector<float> norms;
  for (std::int64_t row = 0; row < log_.num_rows(); ++row)
    norms.push_back(static_cast<float>(log_.value(row, column).value()));
  return norms;
}

void LoggedProducts::into_norms() {
  for (std::size_t i = 0; i < as_.size(); ++i) {
    at::mm_out(product_, as_[i], bs_[i]);
    at::linalg_vector_norm_out(single_norms_[i], product_);
  }
}

BenchReport measure_log(const std::vector<Device>& devices, const LoggedProductsOptions& options,
                        const TimingOptions& timing) {
  BenchReport report{.title = "1,000 products of 100 x 100 and their Frobenius norms",
                     .chart = {.title = "1,000 norms for the host",
                               .xlabel = "variant: 1 one at a time, 2 kept, 3 preallocated, 4 batched",
                               .ylabel = "ms",
                               .yscale = AxisScale::log}};
  for (const Device device : devices) {
    add_ways(device, options, timing, report);
    if (const std::string why = why_no_graph(device); !why.empty())
      report.notes.push_back(device.str() + ": no graph was captured, because " + why);
  }
  report.notes.push_back("the norms of all variants agree to 1e-4, relative");
  report.notes.push_back("on the cpu a number is already on the host: nothing is copied or waited for");
  report.note_missing_card();
  return report;
}

}  // namespace kindling
