#pragma once

#include <optional>
#include <string>
#include <vector>

#include "clock.h"
#include "protocol.h"

namespace kindling_bench {

// The result of the repeats of one case.
struct Result {
  std::string metric;  // "cpu", "wall" …
  std::string unit;
  std::vector<double> values{};  // one per repeat
  std::optional<double> final_loss{};
};

// Prints the JSON line of a result: median, least and largest value.
void report(const Options& options, Result result);

// Prints both metrics of a clock: seconds, or microseconds where the unit begins with "us/", divided by
// `parts` (the steps or samples of a repeat).
void report_times(const Options& options, const Clock& clock, const std::string& unit, double parts,
                  std::optional<double> final_loss);

}  // namespace kindling_bench
