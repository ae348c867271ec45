#include <iostream>
#include <map>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/device/host_info.h"
#include "measurements/operator_threads.h"
#include "program/bench_report.h"
#include "program/commands.h"

namespace kindling {
namespace {

// The products of log are too small to be shared among threads: they would mostly wait for each other.
std::int64_t default_threads(const BenchRequest& request) {
  return request.what == "log" ? 1 : host_info().num_threads;
}

// Said before anything is measured.
void check_svg_path(const std::filesystem::path& file) {
  if (file.empty()) return;
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (std::filesystem::is_directory(folder)) return;
  throw ConfigError({.place = "--svg " + file.string(),
                     .found = "there is no folder " + folder.string(),
                     .wanted = "a file in a folder that exists"});
}

}  // namespace

int bench_command(const CommandContext& context) {
  static const std::map<std::string, BenchReport (*)(const BenchRequest&)> measurements{
      {"matmul", bench_matmul}, {"log", bench_log}, {"pair", bench_pair}, {"transfer", bench_transfer}};
  const BenchRequest& request = context.request.bench;
  check_svg_path(request.svg);
  const OperatorThreads threads(
      static_cast<int>(request.threads > 0 ? request.threads : default_threads(request)));
  const BenchReport report = measurements.at(request.what)(request);
  if (context.request.json)
    print_json_lines(report, request, std::cout);
  else
    print_table(report, std::cout);
  if (!request.svg.empty()) write_file_atomically(request.svg, to_svg(report.chart));
  return 0;
}

}  // namespace kindling
