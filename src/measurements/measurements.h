#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kindling/charts/chart.h"
#include "kindling/device/device.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/training/step_times.h"

// The exercises of Dive into Deep Learning, and the steps of a run. Each measurement throws Error if its
// numbers are wrong, and restores settings and random state of the process.
namespace kindling {

// Seconds per call: the median of some repeats and their spread.
struct Timing {
  double median_s = 0, min_s = 0, max_s = 0;
  std::int64_t repeats = 0;
};

// Summarizes one or more repeats.
Timing timing_of(std::vector<double> seconds);

struct TimingOptions {
  std::int64_t warm_up = 2;  // calls that do not count; `min_seconds` is based on the last one
  std::int64_t repeats = 5;
  double min_seconds = 0;  // per repeat: a shorter call is repeated within each
};

// Waits until a GPU is idle; does nothing on the CPU.
void wait_for(const std::vector<Device>& devices);

// Measures by the host's clock, started and stopped when the devices are idle.
Timing time_calls(const std::vector<Device>& devices, const std::function<void()>& call,
                  const TimingOptions& options);

// One value of a row: in JSON under `key`, in the table under `title`; skipped where that is empty.
struct BenchField {
  std::string key{};
  nlohmann::ordered_json value{};
  std::string title{};
  std::string text{};  // in the table; empty: the value
};

using BenchRow = std::vector<BenchField>;

BenchRow joined(std::initializer_list<BenchRow> parts);
BenchRow fields_of(Device device, const char* title = "");
BenchRow fields_of(const Timing& time);
// `titles` belong to the first ones of TransferCounts::kNames.
BenchRow fields_of(const TransferCounts& counts, std::initializer_list<const char*> titles);

// The result of a measurement, for people and for programs.
struct BenchReport {
  std::string title{};
  Chart chart{};
  std::vector<BenchRow> rows{};      // all with the same fields
  std::vector<std::string> notes{};  // one line each
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();

  // Returns the curve with that label, which is created if missing.
  Curve& curve(const std::string& label);
  // Adds a row that is also a point of a curve.
  void add(BenchRow row, const std::string& label, double x, double y);
  // Notes why nothing was measured on a GPU, if so.
  void note_missing_card(const std::string& consequence = "");
};

std::string rounded_text(double value);  // three digits: "2.47e-07", "0.0123", "12.3", "1230"
std::string time_text(double seconds);   // "12.3 µs"

nlohmann::ordered_json json_of(const BenchRow& row);

void print_table(const BenchReport& report, std::ostream& out);
// Prints one object per line: the rows and then a summary, each with the name of the measurement, LibTorch
// and threads.
void print_json_lines(const BenchReport& report, const std::string& name, std::ostream& out);

// Exercise 1: products of two n×n matrices, from small to large.
struct MatmulOptions {
  std::int64_t min_n = 16, max_n = 16384;  // n doubles from the first to the second
  double time_budget_s = 6;                // in total, approximately
};

// Measures in fp32, in TF32 if the device supports it, and in bf16.
BenchReport measure_matmul(const std::vector<Device>& devices, const MatmulOptions& options,
                           TimingOptions timing);

// Returns the smallest n (x) of both curves from which on the GPU's speed (y) is higher; nothing if there is
// none.
std::optional<std::int64_t> crossover(const Curve& host, const Curve& card);

// Exercise 3: numbers computed on a device, and ways to copy them to the host (LoggedProducts).
struct LoggedProductsOptions {
  std::int64_t num_products = 1000, n = 100;  // those of the exercise; tests use less
};

BenchReport measure_log(const std::vector<Device>& devices, const LoggedProductsOptions& options,
                        const TimingOptions& timing);

// Exercise 4: two products of n×n matrices, one after the other on one device, and both at once on two: on
// the first two of `cards`, or with fewer on two CPU workers with one thread each. n = 0 chooses a size
// that suits the devices.
BenchReport measure_pair(const std::vector<Device>& cards, std::int64_t n, const TimingOptions& timing);

struct TransferOptions {
  std::int64_t mebibytes = 64;  // in total
  std::int64_t pieces = 16384;  // a power of two, else ConfigError
};

// Measures copies to a GPU and back, from pageable and from pinned memory, in one copy and in many
// (TransferRoute). For the CPU, which is the host: copies within it, pageable ones only.
BenchReport measure_transfer(Device device, const TransferOptions& options, const TimingOptions& timing);

// Measures training steps, eager and with step capture, alternating.
struct StepBenchOptions {
  std::string name{};  // of the run, for the title
  StepTimesOptions steps{};
  std::int64_t repeats = 5;
};

// `make_model` returns the same model every time, and seeds the random state.
using MakeModel = std::function<std::shared_ptr<Module>()>;
BenchReport measure_step(const TrainerOptions& trainer, const MakeModel& make_model, DataModule& data,
                         const StepBenchOptions& options);

}  // namespace kindling
