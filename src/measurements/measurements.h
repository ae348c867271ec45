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

// The exercises of the textbook, and the steps of a training. Each throws Error when its numbers are wrong;
// settings and random state of the process are afterwards what they were.
namespace kindling {

// Seconds of one call: the median of some repeats and how far they lie apart.
struct Timing {
  double median_s = 0, min_s = 0, max_s = 0;
  std::int64_t repeats = 0;
};

// Of one or more repeats.
Timing timing_of(std::vector<double> seconds);

struct TimingOptions {
  std::int64_t warm_up = 2;  // calls that do not count; the last of them is measured for `min_seconds`
  std::int64_t repeats = 5;
  double min_seconds = 0;  // of a repeat: a shorter call is made several times in each
};

// Waits until a card has nothing left to do; nothing on the CPU.
void wait_for(const std::vector<Device>& devices);

// By the host's clock, started and stopped when the devices have nothing left to do.
Timing time_calls(const std::vector<Device>& devices, const std::function<void()>& call,
                  const TimingOptions& options);

// One value of a row: in JSON under `key`, in the table under `title`; where that is empty, it is left out.
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
// `titles` are those of the first ones of TransferCounts::kNames.
BenchRow fields_of(const TransferCounts& counts, std::initializer_list<const char*> titles);

// What a measurement has found, for people and for programs.
struct BenchReport {
  std::string title{};
  Chart chart{};
  std::vector<BenchRow> rows{};      // of the same fields
  std::vector<std::string> notes{};  // one line each
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();

  // The curve of that label; a new one when there is none.
  Curve& curve(const std::string& label);
  // A row that is also a point of a curve.
  void add(BenchRow row, const std::string& label, double x, double y);
  // Says why nothing was measured on a card, if so.
  void note_missing_card(const std::string& consequence = "");
};

std::string rounded_text(double value);  // three digits: "2.47e-07", "0.0123", "12.3", "1230"
std::string time_text(double seconds);   // "12.3 µs"

nlohmann::ordered_json json_of(const BenchRow& row);

void print_table(const BenchReport& report, std::ostream& out);
// One object per line: the rows and then a summary, each with the name of the measurement, LibTorch and
// threads.
void print_json_lines(const BenchReport& report, const std::string& name, std::ostream& out);

// Exercise 1: products of two n×n matrices, from small to large.
struct MatmulOptions {
  std::int64_t min_n = 16, max_n = 16384;  // n doubles from the first to the second
  double time_budget_s = 6;                // of everything, about
};

// In fp32, in TF32 where the device has it, and in bf16.
BenchReport measure_matmul(const std::vector<Device>& devices, const MatmulOptions& options,
                           TimingOptions timing);

// The smallest n (x) of both curves from which on the card's speed (y) is higher; nothing when it is not.
std::optional<std::int64_t> crossover(const Curve& host, const Curve& card);

// Exercise 3: numbers that are made on a device, and ways to have them on the host (LoggedProducts).
struct LoggedProductsOptions {
  std::int64_t num_products = 1000, n = 100;  // the exercise's; tests take less
};

BenchReport measure_log(const std::vector<Device>& devices, const LoggedProductsOptions& options,
                        const TimingOptions& timing);

// Exercise 4: two products of n×n matrices, one after the other in one place against both at once in two: on
// the first two of `cards`, or with fewer than two of them on two workers of the CPU, of one thread each. 0
// takes the n that suits the place.
BenchReport measure_pair(const std::vector<Device>& cards, std::int64_t n, const TimingOptions& timing);

struct TransferOptions {
  std::int64_t mebibytes = 64;  // in all
  std::int64_t pieces = 16384;  // a power of two, else ConfigError
};

// To a card and back, from pageable and from pinned memory, in one copy and in many (TransferRoute). For the
// CPU, which is the host: copies within it, pageable ones only.
BenchReport measure_transfer(Device device, const TransferOptions& options, const TimingOptions& timing);

// The steps of a training, operator by operator and with its step graph, in turns.
struct StepBenchOptions {
  std::string name{};  // of the training, for the title
  StepTimesOptions steps{};
  std::int64_t repeats = 5;
};

// `make_model` gives the same model every time, and seeds what it draws.
using MakeModel = std::function<std::shared_ptr<Module>()>;
BenchReport measure_step(const TrainerOptions& trainer, const MakeModel& make_model, DataModule& data,
                         const StepBenchOptions& options);

}  // namespace kindling
