#include "kindling/base/log.h"
#include "kindling/training/lr_finder.h"
#include "program/commands.h"
#include "program/fit_run.h"
#include "program/host_memory.h"
#include "program/process_settings.h"
#include "program/start_files.h"

namespace kindling {
namespace {

// Everything that can be refused is refused before there is a folder.
int fit_in_group(FitInputs in) {
  RunConfig& config = *in.loaded.config;
  if (config.folder.compact_memory) keep_memory_compact();
  const auto& checkpoint = in.plan.checkpoint;
  if (in.group)
    in.group->require_same(
        "where the fit begins",
        {{"the run", in.plan.run.string()}, {"the checkpoint", checkpoint ? checkpoint->path.string() : ""}});
  in.data = config.make_data();
  in.data->prepare();
  in.model = config.make_model();
  if (in.plan.run.empty()) start_from_files(config, *in.model);
  if (in.plan.run.empty() && config.lr_finder.is_on) require_one_lr(config.trainer_options(), *in.model);
  return run_fit(std::move(in));
}

}  // namespace

int fit_command(const CommandContext& context) {
  StopOnSignal signals;
  const LoadedConfig loaded = load_config(context.request, context.registry);
  if (loaded.only_asked) return 0;
  RunConfig& config = *loaded.config;
  const auto place = place_among_processes(config);
  const std::int64_t number = num_processes(place, config);
  const bool is_launcher = !place && number > 1;
  // What a warning is about, the first process sees, too.
  if (is_launcher || (place && place->rank > 0))
    configure_log({.level = LogLevel::error, .to_stderr = true, .file = {}});
  apply(config.process);
  ResumePlan plan = plan_resume(context.request, context.registry, config);
  if (plan.is_finished) return tell_finished(!place || place->rank == 0, plan);
  if (plan.run.empty()) require_no_search(place, config);
  if (is_launcher) return launch_fit(context, number);
  // It is joined once all have made their plans: the first one will then change what these are made of.
  const Group group = place ? ProcessGroup::join(*place, config.distributed) : nullptr;
  try {
    return fit_in_group({context, loaded, group, std::move(plan), signals});
  } catch (const std::exception& error) {
    if (group) group->leave(error.what());
    throw;
  }
}

}  // namespace kindling
