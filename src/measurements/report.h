#pragma once

#include <initializer_list>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/loggers/chart.h"
#include "measurements/timing.h"

namespace kindling {

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

}  // namespace kindling
