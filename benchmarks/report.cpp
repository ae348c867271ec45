#include "report.h"

#include <kindling/base/json.h>
#include <kindling/device/host_info.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace kindling_bench {
namespace {

constexpr double kMicro = 1e6;

double median(const std::vector<double>& sorted) {
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string rounded(double value) { return kindling::json_number(std::round(value * kMicro) / kMicro); }

}  // namespace

void report(const Options& options, Result result) {
  using kindling::json_string;
  std::sort(result.values.begin(), result.values.end());
  const std::string loss = result.final_loss ? kindling::json_number(*result.final_loss) : "null";
  std::cout << R"({"case": )" << json_string(options.case_name) << R"(, "variant": )"
            << json_string(options.variant) << R"(, "peer": )" << json_string(options.peer)
            << R"(, "threads": )" << options.threads << R"(, "precision": )" << json_string(options.precision)
            << R"(, "metric": )" << json_string(result.metric) << R"(, "unit": )" << json_string(result.unit)
            << R"(, "median": )" << rounded(median(result.values)) << R"(, "min": )"
            << rounded(result.values.front()) << R"(, "max": )" << rounded(result.values.back())
            << R"(, "repeats": )" << result.values.size() << R"(, "final_loss": )" << loss << R"(, "torch": )"
            << json_string(TORCH_VERSION) << R"(, "cpu_model": )"
            << json_string(kindling::host_info().cpu_model) << "}" << std::endl;
}

void report_times(const Options& options, const Clock& clock, const std::string& unit, double parts,
                  std::optional<double> final_loss) {
  const double factor = (unit.starts_with("us/") ? kMicro : 1) / parts;
  const auto scaled = [&](std::vector<double> seconds) {
    for (double& value : seconds) value *= factor;
    return seconds;
  };
  report(options, {.metric = "cpu", .unit = unit, .values = scaled(clock.cpu()), .final_loss = final_loss});
  report(options, {.metric = "wall", .unit = unit, .values = scaled(clock.wall()), .final_loss = final_loss});
}

}  // namespace kindling_bench
