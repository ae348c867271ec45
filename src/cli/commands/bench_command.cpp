#include <iostream>
#include <optional>

#include "device/operator_threads.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/device/host_info.h"
#include "program/commands.h"
#include "program/step_bench.h"

namespace kindling {
namespace {

std::vector<Device> cpu_and_first_gpu() {
  std::vector<Device> devices{cpu()};
  if (num_gpus() > 0) devices.push_back(gpu());
  return devices;
}

BenchReport measure(const BenchRequest& request) {
  if (request.what == "matmul") return measure_matmul(cpu_and_first_gpu(), request.matmul, request.timing);
  if (request.what == "log") return measure_log(cpu_and_first_gpu(), {}, request.timing);
  if (request.what == "pair") return measure_pair(first_gpus(-1), request.n, request.timing);
  return measure_transfer(try_gpu(), request.transfer, request.timing);
}

std::int64_t threads_of(const BenchRequest& request) {
  if (request.threads > 0) return request.threads;
  // The products of log are too small to be shared among threads: they would mostly wait for each other.
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
  const BenchRequest& request = context.request.bench;
  check_svg_path(request.svg);
  std::optional<StepBench> step;
  if (request.what == "step") step.emplace(context);
  const OperatorThreads threads(static_cast<int>(step ? step->num_threads() : threads_of(request)));
  const BenchReport report = step ? step->measure() : measure(request);
  if (context.request.json)
    print_json_lines(report, request.what, std::cout);
  else
    print_table(report, std::cout);
  if (!request.svg.empty()) write_file_atomically(request.svg, to_svg(report.chart));
  return 0;
}

}  // namespace kindling
