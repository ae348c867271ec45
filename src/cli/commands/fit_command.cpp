#include <algorithm>
#include <iterator>
#include <utility>

#include "base/joined.h"
#include "cli/check/fit_check.h"
#include "cli/commands/commands.h"
#include "cli/config/exit_codes.h"
#include "cli/run/early_messages.h"
#include "cli/run/fit_processes.h"
#include "cli/run/fit_run.h"
#include "cli/run/launcher_watch.h"
#include "cli/run/lost_output.h"
#include "cli/run/process_settings.h"
#include "cli/run/rank_threads.h"
#include "cli/run/requeue.h"
#include "cli/run/start_files.h"
#include "cli/run/stop_on_signal.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

// Returns the checkpoint that the plan resumes; empty for a new run.
std::filesystem::path checkpoint_of(const ResumePlan& plan) {
  return plan.checkpoint ? plan.checkpoint->path : std::filesystem::path();
}

// A warning if the config of the command no longer says what the run began with; else empty.
std::string edits_since(ConfigTables& of_run, ConfigTables& now, const std::filesystem::path& run) {
  now.keep_found(of_run);
  const auto changes = changes_between(of_run, now);
  if (changes.empty()) return {};
  const auto text = [](const ConfigChange& change) {
    return change.key + ": was " + change.was + ", now " + change.now;
  };
  return "the config has changed since the run began (" + joined(changes, "; ", text) +
         "), and a job that continues keeps that of the run, " + (run / "config.toml").string() +
         "; to train with the changes, submit the job again";
}

// Reports all errors that it can find before it creates the run directory.
int fit_in_group(FitInputs in) {
  RunConfig& config = *in.loaded.config;
  if (config.folder.compact_memory) keep_memory_compact();
  const auto& checkpoint = in.plan.checkpoint;
  if (in.group) {
    ProcessGroup::NamedTexts values{{"the run", in.plan.run.string()},
                                    {"the checkpoint", checkpoint ? checkpoint->path.string() : ""}};
    std::ranges::copy(config.shared_values(), std::back_inserter(values));
    in.group->require_same("the start of the fit", values);
  }
  RankThreads threads = set_rank_threads(in.group, config.trainer.options);
  in.threads = std::move(threads.reason);
  const bool is_resumed = !in.plan.run.empty();
  if (!is_resumed || !in.group) {
    CheckedFit checked = check_fit(in.loaded, {.checkpoint = checkpoint_of(in.plan),
                                               .tries_batch = !in.group,
                                               .num_ranks = in.group ? in.group->size() : 1});
    in.data = std::move(checked.data);
    in.warnings = std::move(checked.warnings);
  } else {
    in.data = config.make_data();  // the launcher has checked
  }
  if (!threads.warning.empty()) in.warnings.push_back("threads: " + threads.warning);
  in.model = config.make_model();
  if (!is_resumed) {
    in.start = start_from_files(config, *in.model);
    if (!in.context.request.quiet && (!in.group || in.group->rank() == 0)) print_start(in.start);
  }
  const bool has_own_launcher = in.place && !in.place->store_file.empty();
  const int exit_code = run_fit(std::move(in));
  return exit_code == 0 && has_own_launcher && has_reported_lost_output() ? kOutputLostInRankCode : exit_code;
}

// Answers --check as the fit would start: with the same messages and exit codes.
int check_command(const CommandContext& context, const LoadedConfig& loaded) {
  apply(loaded.config->process);
  const ResumePlan plan = plan_resume(context.request, context.registry, *loaded.config);
  if (plan.is_finished) return print_finished(/*is_first=*/true, plan);
  const CheckedFit checked = check_start(loaded, checkpoint_of(plan));
  for (const std::string& warning : checked.warnings) log_warning(warning);
  print_valid(loaded);
  return 0;
}

}  // namespace

int fit_command(const CommandContext& words) {
  const Request requested = with_column_to_predict(words.request);
  const CommandContext command{requested, words.registry, words.argc, words.argv};
  if (!requested.sweep.parameters.empty()) return sweep_command(command);
  StopOnSignal signals;
  const bool is_to_run = !command.request.check && command.request.print_config.empty();
  const LaunchPlace place = is_to_run ? launch_environment() : std::nullopt;
  StartRequest start = request_of_start(place, command.request);
  const CommandContext context{start.request, command.registry, command.argc, command.argv};
  LoadedConfig loaded = load_config(context.request, context.registry);
  if (loaded.is_query) return command.request.print_config.empty() ? check_command(context, loaded) : 0;
  const std::optional<SlurmJob> job = slurm_job();
  require_requeue(*loaded.config, place, job);
  if (is_to_requeue(*loaded.config)) signals.stop_on_usr1();
  std::string edits;
  if (const auto run = run_of_earlier_life(*loaded.config, job, command_line_of(command));
      !run.empty() && launched_run(place).empty()) {
    start = request_to_continue(run, command.request);
    LoadedConfig of_run = load_config(context.request, context.registry);
    edits = edits_since(*of_run.config, *loaded.config, run);
    loaded = std::move(of_run);
  }
  RunConfig& config = *loaded.config;
  require_num_processes(place, config);
  const std::int64_t number = num_processes(place, config);
  const bool is_launcher = !place && number > 1;
  config.set_local_ranks(place ? place->local_size : number);
  // Rank 0 sees the reasons for warnings, too, so only it logs them.
  const bool is_silent = is_launcher || (place && place->rank > 0);
  EarlyMessages early(is_silent ? LogLevel::error : LogLevel::warning);
  apply(config.process);
  if (!edits.empty()) log_warning(edits);
  if (!is_launcher) warn_unused_restarts(place, config);
  if (start.restarts_in.empty() && (!place || place->rank == 0)) require_unused_run(context.request, config);
  ResumePlan plan = start.restarts_in.empty() ? plan_resume(context.request, context.registry, config)
                                              : ResumePlan{.restarts_in = start.restarts_in};
  if (plan.is_finished) return print_finished(!place || place->rank == 0, plan);
  if (plan.run.empty()) require_no_search(place, config);
  if (is_launcher) {
    // The ranks try no batch, and would report their errors once each.
    check_fit(loaded, {.checkpoint = checkpoint_of(plan), .num_ranks = number});
    return launch_fit(context, number, config, signals);
  }
  // It is joined once all have made their plans: the first one will then change what these are made of.
  const LauncherWatch watch(place, signals);
  const Group group = place ? join_ranks(*place, config.distributed) : nullptr;
  try {
    return fit_in_group({context, loaded, place, job, group, std::move(plan), signals, early});
  } catch (const std::exception& error) {
    if (group) group->leave(error.what());
    throw;
  }
}

}  // namespace kindling
