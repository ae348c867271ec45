#include <ATen/Parallel.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/commands/commands.h"
#include "cli/run/loaded_config.h"
#include "cli/run/process_settings.h"
#include "cli/run/start_files.h"
#include "device/operator_threads.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/data/data_module.h"
#include "kindling/device/host_info.h"
#include "kindling/training/threads_finder.h"
#include "kindling/training/trainer_options.h"

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
  // The matmuls of `log` are too small for several threads, which would mostly wait for each other.
  return request.what == "log" ? 1 : host_info().num_threads;
}

// Checks the path before anything is measured.
void check_svg_path(const std::filesystem::path& file) {
  if (file.empty()) return;
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (std::filesystem::is_directory(folder)) return;
  throw ConfigError({.place = "--svg " + file.string(),
                     .found = "there is no directory " + folder.string(),
                     .wanted = "a file in an existing directory"});
}

// `kindling bench step`: measures the training steps of a config as `fit` would run them, without a run
// directory.
class StepBench {
 public:
  // Throws the errors of `fit`, and chooses the number of threads in the same way.
  explicit StepBench(const CommandContext& context);

  std::int64_t num_threads() const;  // of operators
  BenchReport measure() const;

 private:
  std::shared_ptr<Module> make_model() const;

  const BenchRequest& request_;
  LoadedConfig loaded_;
  std::shared_ptr<DataModule> data_;
  TrainerOptions trainer_;
};

StepBench::StepBench(const CommandContext& context)
    : request_(context.request.bench), loaded_(load_config(context.request, context.registry)) {
  const RunConfig& config = *loaded_.config;
  apply(config.process);
  if (config.folder.compact_memory) keep_memory_compact();
  data_ = config.make_data();
  const auto model = make_model();
  trainer_ = config.trainer_options();
  trainer_.optimizer = with_start(trainer_.optimizer, config.optimizer_start);
  if (request_.threads > 0) trainer_.num_threads = request_.threads;
  if (!trainer_.num_threads && std::getenv("OMP_NUM_THREADS") == nullptr)
    trainer_.num_threads = find_num_threads(trainer_, model, *data_).num_threads;
}

std::shared_ptr<Module> StepBench::make_model() const {
  auto model = loaded_.config->make_model();
  start_from_files(*loaded_.config, *model);
  return model;
}

std::int64_t StepBench::num_threads() const { return trainer_.num_threads.value_or(at::get_num_threads()); }

BenchReport StepBench::measure() const {
  configure_log({});  // the report contains what every trial would log again
  BenchReport report = measure_step(
      trainer_, [this] { return make_model(); }, *data_,
      {.name = loaded_.description, .steps = request_.steps, .repeats = request_.timing.repeats});
  if (loaded_.config->batch_finder.is_on || loaded_.config->lr_finder.is_on)
    report.notes.push_back(
        "the values of the config are used; a fit would search first ([batch_finder], [lr_finder])");
  return report;
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
