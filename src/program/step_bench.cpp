#include "program/step_bench.h"

#include <ATen/Parallel.h>

#include <cstdlib>

#include "kindling/base/log.h"
#include "kindling/training/threads_finder.h"
#include "program/host_memory.h"
#include "program/process_settings.h"
#include "program/start_files.h"

namespace kindling {

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
  configure_log({});  // what the trials would say, again and again, stands in the report
  BenchReport report = measure_step(
      trainer_, [this] { return make_model(); }, *data_,
      {.name = loaded_.description, .steps = request_.steps, .repeats = request_.timing.repeats});
  if (loaded_.config->batch_finder.is_on || loaded_.config->lr_finder.is_on)
    report.notes.push_back(
        "a fit would search first ([batch_finder], [lr_finder]); these are the config's values");
  return report;
}

}  // namespace kindling
