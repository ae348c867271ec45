#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/loggers/chart.h"
#include "measurements/timing.h"
#include "program/command_line.h"

namespace kindling {

// What `kindling bench` has found, for people and for programs.
struct BenchReport {
  std::string title{};
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> table{};  // as many cells as the header
  std::vector<std::string> notes{};               // one line each
  std::vector<nlohmann::ordered_json> results{};  // one object per row
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();
  Chart chart{};
};

// One per measurement; each throws Error when its numbers are wrong.
BenchReport bench_matmul(const BenchRequest& request);
BenchReport bench_log(const BenchRequest& request);
BenchReport bench_pair(const BenchRequest& request);
BenchReport bench_transfer(const BenchRequest& request);

// The CPU's or the card's model.
std::string device_name(Device device);
// "cpu" and the first card where there is one.
std::vector<Device> cpu_and_first_gpu();

std::string rounded_text(double value);    // three digits: "2.47e-07", "0.0123", "12.3", "1230"
std::string time_text(double seconds);     // "12.3 µs"
std::string spread_text(const Timing& t);  // "11.9 µs … 14.2 µs"
void put_timing(nlohmann::ordered_json& result, const Timing& timing);

void print_table(const BenchReport& report, std::ostream& out);
// One object per line: the results and then a summary, each with device, LibTorch and threads.
void print_json_lines(const BenchReport& report, const BenchRequest& request, std::ostream& out);

}  // namespace kindling
