#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/training/step_times.h"
#include "measurements/report.h"

// The exercises of the textbook, and the steps of a training. Each throws Error when its numbers are wrong;
// settings and random state of the process are afterwards what they were.
namespace kindling {

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
