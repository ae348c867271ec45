#include "kindling/base/error.h"
#include "measurements/float32_products.h"
#include "measurements/logged_products.h"
#include "measurements/matmul_measurement.h"
#include "measurements/product_pair.h"
#include "measurements/transfer_measurement.h"
#include "program/bench_report.h"

namespace kindling {
namespace {

using Json = nlohmann::ordered_json;

TimingOptions timing_of_request(const BenchRequest& request, double min_seconds = 0) {
  return {.repeats = request.repeats, .min_seconds = min_seconds};
}

std::string no_card_note() { return "no card: " + why_no_more_gpus(); }

void add_matmul_series(const MatmulSeries& series, BenchReport& report) {
  Curve curve{.label = series.device.str() + " " + series.precision};
  for (const MatmulPoint& point : series.points) {
    report.table.push_back({series.device.str(), series.precision, std::to_string(point.n),
                            time_text(point.time.median_s), spread_text(point.time),
                            rounded_text(point.tflops())});
    Json result{{"device", series.device.str()},
                {"device_name", device_name(series.device)},
                {"precision", series.precision},
                {"n", point.n}};
    put_timing(result, point.time);
    result["tflops"] = point.tflops();
    report.results.push_back(std::move(result));
    curve.x.push_back(static_cast<double>(point.n));
    curve.y.push_back(point.tflops());
  }
  report.chart.curves.push_back(std::move(curve));
}

// A card's series against the CPU's: TF32 stands against the CPU's fp32.
void add_crossovers(const std::vector<MatmulSeries>& all, BenchReport& report) {
  Json sizes = Json::object();
  std::string line = "crossover, the n from which the card stays faster:";
  for (const MatmulSeries& card : all) {
    if (card.device.is_cpu()) continue;
    for (const MatmulSeries& host : all) {
      const bool comparable =
          host.device.is_cpu() && host.precision == (card.precision == "tf32" ? "fp32" : card.precision);
      if (!comparable) continue;
      const auto n = crossover(host, card);
      sizes[card.precision] = n ? Json(*n) : Json();
      line += " " + card.precision + " " + (n ? std::to_string(*n) : "-");
    }
  }
  report.notes.push_back(sizes.empty() ? line + " -" : line);
  report.summary["crossover"] = sizes.empty() ? Json() : sizes;
}

// What the numbers were made with, and why a series stopped where it did.
void add_matmul_settings(const std::vector<MatmulSeries>& all, BenchReport& report) {
  Json settings = Json::array();
  for (const MatmulSeries& series : all) {
    const std::string device = series.device.str(), library = matrix_library(series.device);
    const char* tf32 = series.precision == "tf32" ? "on" : "off";
    if (series.precision == "fp32") report.notes.push_back(device + ": multiplied by " + library);
    report.notes.push_back(device + " " + series.precision + ": TF32 " + tf32 + ", 64 x 64 off by " +
                           rounded_text(series.error) +
                           " of its largest element, ended by: " + series.ended_by);
    settings.push_back({{"device", device},
                        {"precision", series.precision},
                        {"tf32", tf32},
                        {"library", library},
                        {"error", series.error},
                        {"ended_by", series.ended_by}});
  }
  report.summary["series"] = std::move(settings);
}

const char* name_of(LoggedProducts::Way way) {
  switch (way) {
    case LoggedProducts::Way::one_at_a_time:
      return "one at a time to the host";
    case LoggedProducts::Way::kept:
      return "kept on the device, moved once";
    case LoggedProducts::Way::preallocated:
      return "preallocated";
    case LoggedProducts::Way::batched:
      return "one batched product";
  }
  return "";
}

void put_counts(Json& result, const TransferCounts& counts) {
  for (const auto& [name, count] : TransferCounts::kNames) result[name] = counts.*count;
}

void add_log_rows(Device device, const std::vector<LogResult>& measured, BenchReport& report) {
  Curve curve{.label = device.str()};
  for (const LogResult& m : measured) {
    const std::string way = name_of(m.way) + std::string(m.graph ? ", recorded graph" : "");
    report.table.push_back({device.str(), way, time_text(m.time.median_s), spread_text(m.time),
                            rounded_text(measured.front().time.median_s / m.time.median_s) + "x",
                            std::to_string(m.counts.host_waits),
                            std::to_string(m.counts.device_to_host_copies)});
    Json result{{"device", device.str()},
                {"device_name", device_name(device)},
                {"variant", name_of(m.way)},
                {"graph", m.graph}};
    put_timing(result, m.time);
    put_counts(result, m.counts);
    result["largest_difference"] = m.largest_difference;
    report.results.push_back(std::move(result));
    curve.x.push_back(static_cast<double>(curve.x.size() + 1));
    curve.y.push_back(m.time.median_s * 1e3);
  }
  report.chart.curves.push_back(std::move(curve));
}

struct PairRow {
  std::string how, where;
  Timing timing;
};

void add_pair_row(const PairRow& row, const PairResult& pair, BenchReport& report) {
  report.table.push_back({row.how, row.where, time_text(row.timing.median_s), spread_text(row.timing)});
  const Device device = pair.places.front();
  Json result{{"device", device.str()},
              {"device_name", device_name(device)},
              {"how", row.how},
              {"where", row.where},
              {"n", pair.n}};
  put_timing(result, row.timing);
  report.results.push_back(std::move(result));
}

std::string memory_name(const TransferRouteOptions& route) {
  if (route.from == route.to) return "within the host";
  return route.pinned ? "pinned" : "pageable";
}

void add_transfer_row(const TransferResult& m, BenchReport& report) {
  const std::string from = m.route.from.str(), to = m.route.to.str(), memory = memory_name(m.route);
  const Device device = m.route.from.is_cpu() ? m.route.to : m.route.from;
  report.table.push_back({from, to, memory, std::to_string(m.route.num_copies), time_text(m.time.median_s),
                          spread_text(m.time), rounded_text(m.gigabytes_per_second()),
                          time_text(m.seconds_per_copy()), std::to_string(m.counts.host_waits)});
  Json result{{"device", device.str()},
              {"device_name", device_name(device)},
              {"from", from},
              {"to", to},
              {"memory", memory},
              {"num_copies", m.route.num_copies},
              {"total_bytes", m.route.total_bytes}};
  put_timing(result, m.time);
  result["gigabytes_per_s"] = m.gigabytes_per_second();
  result["us_per_copy"] = m.seconds_per_copy() * 1e6;
  put_counts(result, m.counts);
  report.results.push_back(std::move(result));
  if (m.route.num_copies == 1) report.chart.curves.push_back({.label = from + " → " + to + ", " + memory});
  Curve& curve = report.chart.curves.back();
  curve.x.push_back(static_cast<double>(m.route.total_bytes) / static_cast<double>(m.route.num_copies));
  curve.y.push_back(m.gigabytes_per_second());
}

}  // namespace

BenchReport bench_matmul(const BenchRequest& request) {
  const auto all = measure_matmul({.devices = cpu_and_first_gpu(),
                                   .max_n = request.max_n,
                                   .time_budget_s = request.time_budget_s,
                                   .timing = timing_of_request(request, 2e-3)});
  BenchReport report{.title = "products of two n x n matrices",
                     .header = {"device", "precision", "n", "median", "min … max", "TFLOP/s"},
                     .chart = {.title = "Matrix products",
                               .xlabel = "n",
                               .ylabel = "TFLOP/s",
                               .xscale = AxisScale::log,
                               .yscale = AxisScale::log}};
  for (const MatmulSeries& series : all) add_matmul_series(series, report);
  add_crossovers(all, report);
  add_matmul_settings(all, report);
  if (num_gpus() == 0) report.notes.push_back(no_card_note());
  return report;
}

BenchReport bench_log(const BenchRequest& request) {
  BenchReport report{
      .title = "1,000 products of 100 x 100 and their Frobenius norms",
      .header = {"device", "variant", "median", "min … max", "speed", "host waits", "copies to host"},
      .chart = {.title = "1,000 norms for the host",
                .xlabel = "variant: 1 one at a time, 2 kept, 3 preallocated, 4 batched",
                .ylabel = "ms",
                .yscale = AxisScale::log}};
  for (const Device device : cpu_and_first_gpu()) {
    const LoggedProductsOptions options;
    add_log_rows(device, measure_log(device, options, timing_of_request(request)), report);
    if (const std::string why = why_no_graph(device); !why.empty())
      report.notes.push_back(device.str() + ": no graph was recorded, " + why);
  }
  report.notes.push_back("the norms of all variants agree to 1e-4, relative");
  report.notes.push_back(
      "on the cpu a number is where the host reads it: nothing is moved, nothing waited for");
  if (num_gpus() == 0) report.notes.push_back(no_card_note());
  return report;
}

BenchReport bench_pair(const BenchRequest& request) {
  const auto cards = first_gpus(-1);
  const bool on_cards = cards.size() >= 2;
  const std::int64_t n = request.n > 0 ? request.n : on_cards ? 8192 : 1024;
  const PairResult pair = measure_pair(cards, n, timing_of_request(request));
  BenchReport report{.title = "two products of " + std::to_string(n) + " x " + std::to_string(n),
                     .header = {"how", "where", "median", "min … max"},
                     .chart = {.title = "Two products", .xlabel = "places", .ylabel = "products per second"}};
  const std::string one_place = on_cards ? cards[0].str() : "one worker of one thread on the cpu";
  const std::string two_places =
      on_cards ? cards[0].str() + " and " + cards[1].str() : "two workers of one thread each on the cpu";
  add_pair_row({"in sequence", one_place, pair.in_sequence}, pair, report);
  add_pair_row({"at once", two_places, pair.at_once}, pair, report);
  const double one = 2 / pair.in_sequence.median_s, two = 2 / pair.at_once.median_s;
  report.chart.curves = {{"measured", {1, 2}, {one, two}}, {"linear", {1, 2}, {one, 2 * one}}};
  report.notes.push_back("speed-up " + rounded_text(pair.speed_up()) + " of 2");
  report.summary["speed_up"] = pair.speed_up();
  if (!on_cards)
    report.notes.push_back("fewer than two cards: " + why_no_more_gpus() + "; so this is the CPU's form");
  return report;
}

BenchReport bench_transfer(const BenchRequest& request) {
  const TransferOptions options{.total_bytes = request.mebibytes << 20, .num_pieces = request.pieces};
  if (options.total_bytes % options.num_pieces != 0)
    throw ConfigError({.place = "--pieces " + std::to_string(options.num_pieces),
                       .found = std::to_string(options.total_bytes) + " bytes cannot be cut into equal ones",
                       .wanted = "a power of two"});
  BenchReport report{
      .title = std::to_string(request.mebibytes) + " MiB in one copy and in many",
      .header = {"from", "to", "memory", "copies", "median", "min … max", "GB/s", "per copy", "host waits"},
      .chart = {.title = "Copies of the same bytes",
                .xlabel = "bytes per copy",
                .ylabel = "GB/s",
                .xscale = AxisScale::log,
                .yscale = AxisScale::log}};
  for (const TransferResult& m : measure_transfer(try_gpu(), options, timing_of_request(request)))
    add_transfer_row(m, report);
  if (num_gpus() == 0)
    report.notes.push_back(no_card_note() +
                           "; these are copies from memory to memory of the host, no transfers");
  return report;
}

}  // namespace kindling
