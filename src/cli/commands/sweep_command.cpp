#include <algorithm>
#include <exception>
#include <iostream>
#include <utility>

#include "base/folder.h"
#include "base/joined.h"
#include "cli/check/fit_check.h"
#include "cli/commands/commands.h"
#include "cli/config/exit_codes.h"
#include "cli/config/run_config.h"
#include "cli/run/loaded_config.h"
#include "cli/sweep/sweep_file.h"
#include "cli/sweep/sweep_runner.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"
#include "runs/sweep_results.h"
#include "runs/sweep_table.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPlanBytes = std::size_t{1} << 28;

// A sweep and its directory.
struct PlannedSweep {
  SweepPlan plan{};
  fs::path folder{};
};

// Removes the overrides of a key and returns the last value; nothing if there is none.
std::optional<std::string> take_override(std::vector<std::string>& overrides, const std::string& key) {
  std::optional<std::string> value;
  for (const std::string& one : overrides)
    if (one.starts_with(key + "=")) value = one.substr(key.size() + 1);
  std::erase_if(overrides, [&](const std::string& one) { return one.starts_with(key + "="); });
  return value;
}

// The sweep that the command line describes, before its values are checked against an earlier start.
SweepFile requested_sweep(const Request& request) {
  SweepFile sweep;
  if (request.command == "sweep") {
    std::error_code ignored;
    if (!fs::exists(request.sweep.path, ignored))
      throw ConfigError({.place = request.sweep.path.string(),
                         .found = "no such file or directory",
                         .wanted = "a sweep file, or the directory of a sweep"});
    sweep = load_sweep_file(request.sweep.path);
  } else {
    if (!request.resume.empty())
      throw ConfigError({.place = "--sweep",
                         .found = "--resume is given, too",
                         .wanted = "one of them",
                         .remedy = "the same command with --sweep resumes the sweep"});
    sweep.definition.configs = read_configs(request.configs);
    sweep.definition.name = request.configs.empty() ? "unnamed" : request.configs.back().stem().string();
    for (const std::string& word : request.sweep.parameters)
      sweep.definition.parameters.push_back(parse_sweep_word(word));
  }
  SweepDefinition& definition = sweep.definition;
  definition.overrides = request.overrides;
  if (auto name = take_override(definition.overrides, "name")) definition.name = *std::move(name);
  if (auto dir = take_override(definition.overrides, "run.dir")) sweep.dir = *std::move(dir);
  if (take_override(definition.overrides, "checkpoint.resume"))
    throw ConfigError({.place = "checkpoint.resume",
                       .found = "a sweep resumes its runs by itself",
                       .remedy = "omit the key"});
  if (!definition.monitor.empty()) {
    definition.overrides.push_back("checkpoint.monitor=" + definition.monitor);
    definition.overrides.push_back("checkpoint.mode=" + definition.mode);
  }
  return sweep;
}

void check_name(const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos && name != "." && name != ".." &&
      name.size() <= 200)
    return;
  throw ConfigError({.place = "name",
                     .found = "'" + one_line(name) + "'",
                     .wanted = "the name of a directory without '/'"});
}

PlannedSweep requested_plan(const Request& request) {
  const SweepFile sweep = requested_sweep(request);
  check_name(sweep.definition.name);
  PlannedSweep planned{
      .plan = make_plan(sweep.definition),
      .folder = fs::absolute(fs::path(sweep.dir) / sweep.definition.name).lexically_normal()};
  planned.plan.folder = fs::current_path();
  planned.plan.jobs = request.sweep.jobs > 0 ? request.sweep.jobs : sweep.jobs;
  return planned;
}

LoadedConfig config_of(const SweepPlan& plan, const SweepRun& run, const Registry& registry) {
  LoadedConfig loaded;
  ConfigDocument& document = loaded.document;
  for (const SweepConfigFile& config : plan.configs)
    document.merge(ConfigDocument::parse(config.text, config.path.string(), config.path.parent_path()));
  for (const std::string& assignment : plan.overrides) document.set(assignment);
  for (std::size_t k = 0; k < plan.keys.size(); ++k) document.set(plan.keys[k] + "=" + run.values[k]);
  loaded.chosen = choose_keys(document, registry, ConfigUse::fit);
  loaded.config = std::make_unique<RunConfig>(document, registry, run.name);
  return loaded;
}

// Finds the monitored value of the first model that can be made.
void add_monitor(SweepPlan& plan, const Registry& registry) {
  for (std::size_t i = 0; i < plan.runs.size() && plan.monitor.empty(); ++i) try {
      const auto config = config_of(plan, plan.runs[i], registry).config;
      const Module::Monitor monitor = config->monitor_of(*config->make_model());
      plan.monitor = monitor.name;
      plan.mode = monitor.higher_is_better ? "max" : "min";
    } catch (const std::exception&) {  // the run will report it
    }
}

SweepPlan stored_plan(const fs::path& folder, const char* hint) {
  const fs::path file = folder / kSweepPlanFile;
  std::error_code ignored;
  if (!fs::exists(file, ignored))
    throw ConfigError({.place = folder.string(),
                       .found = "not the directory of a sweep: it has no " + std::string(kSweepPlanFile),
                       .wanted = "the directory of a sweep",
                       .remedy = hint});
  return parse_plan(read_file(file, kMaxPlanBytes), file.string());
}

void require_same(const SweepPlan& was, const SweepPlan& now, const fs::path& folder) {
  const auto differences = plan_differences(was, now);
  if (differences.empty()) return;
  const auto line = [](const std::string& difference) { return "  " + difference + "\n"; };
  throw ConfigError({.found = folder.string() + ": the sweep differs from the one that was started here:\n" +
                              joined(differences, "", line) +
                              "nothing was run; undo these changes, or start another sweep with name=NAME"});
}

// True if the directory has nothing but hidden files, such as its lock.
bool is_new(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::none_of(fs::directory_iterator(folder, ignored), [](const auto& entry) {
    return !entry.path().filename().string().starts_with('.');
  });
}

// Called with the directory's lock. The plan is stored before any run starts.
void store_or_compare(PlannedSweep& sweep, const Registry& registry) {
  if (is_new(sweep.folder)) {
    add_monitor(sweep.plan, registry);
    write_file_atomically(sweep.folder / kSweepPlanFile, plan_text(sweep.plan));
    return;
  }
  const SweepPlan stored = stored_plan(sweep.folder, "choose another name with name=NAME");
  if (sweep.plan.monitor.empty()) {
    sweep.plan.monitor = stored.monitor;
    sweep.plan.mode = stored.mode;
  }
  require_same(stored, sweep.plan, sweep.folder);
  sweep.plan.folder = stored.folder;
}

PlannedSweep sweep_in_folder(const Request& request) {
  const fs::path folder = fs::absolute(request.sweep.path / "").lexically_normal().parent_path();
  SweepPlan plan =
      stored_plan(folder, "for example sweeps/digits; kindling runs lists the runs of a directory");
  if (!request.overrides.empty())
    throw ConfigError({.place = folder.string(),
                       .found = "a started sweep cannot change: " + request.overrides.front(),
                       .remedy = "start another sweep, or omit the override"});
  std::vector<fs::path> files;
  for (const SweepConfigFile& config : plan.configs) files.push_back(config.path);
  SweepPlan now = plan;
  now.configs = read_configs(files);
  require_same(plan, now, folder);
  if (request.sweep.jobs > 0) plan.jobs = request.sweep.jobs;
  return {.plan = std::move(plan), .folder = folder};
}

// Checks runs of a sweep: their configs, and in a new sweep whether their fits can start, until one of them
// can. A later run that cannot start becomes a row of the table.
class SweepCheck {
 public:
  SweepCheck(const PlannedSweep& sweep, const Registry& registry)
      : sweep_(sweep), registry_(registry), can_start_(!is_new(sweep.folder)) {}

  // Throws the error that the fit of the run would report.
  void check(const SweepRun& run) {
    const LoadedConfig loaded = config_of(sweep_.plan, run, registry_);
    if (can_start_) return;
    loaded.config->folder.dir = sweep_.folder.string();
    check_start(loaded);
    can_start_ = true;
  }

 private:
  const PlannedSweep& sweep_;
  const Registry& registry_;
  bool can_start_;  // one of the runs
};

// Throws the error of the first run if no run can start, as with a misspelled key or missing data: the sweep
// would leave only a folder that the corrected command cannot use.
void require_valid_run(const PlannedSweep& sweep, const Registry& registry) {
  const std::vector<SweepRun>& runs = sweep.plan.runs;
  std::exception_ptr first;
  SweepCheck check(sweep, registry);
  for (const SweepRun& run : runs) try {
      return check.check(run);
    } catch (const std::exception&) {
      if (!first) first = std::current_exception();
    }
  const std::string which =
      runs.size() == 1 ? "" : "; run 1 of " + std::to_string(runs.size()) + ", all of which are refused";
  try {
    std::rethrow_exception(first);
  } catch (const ConfigError& error) {
    throw ConfigError({.found = error.what() + which});
  } catch (const DataError& error) {
    throw DataError({.found = error.what() + which});
  } catch (const Error& error) {
    throw Error({.found = error.what() + which});
  }
}

// Lists the runs and checks them.
int check_runs(const PlannedSweep& sweep, const Registry& registry) {
  const std::vector<SweepRun>& runs = sweep.plan.runs;
  std::vector<SweepRow> rows(runs.size());
  bool is_valid = true;
  SweepCheck check(sweep, registry);
  for (std::size_t i = 0; i < rows.size(); ++i) try {
      check.check(runs[i]);
      rows[i].status = "valid";
    } catch (const std::exception& error) {
      rows[i].status = "refused";
      const std::string text = error.what();
      rows[i].note = text.substr(0, text.find('\n'));
      is_valid = false;
    }
  std::cout << sweep_text(sweep.plan, rows) << counted(rows.size(), "run") << ", nothing was run\n";
  return is_valid ? 0 : kConfigErrorCode;
}

}  // namespace

int sweep_command(const CommandContext& context) {
  const Request& request = context.request;
  std::error_code ignored;
  const bool is_folder = request.command == "sweep" && fs::is_directory(request.sweep.path, ignored);
  PlannedSweep sweep = is_folder ? sweep_in_folder(request) : requested_plan(request);
  if (request.check) return check_runs(sweep, context.registry);
  if (!request.print_config.empty())
    throw ConfigError({.place = "--print-config", .found = "a sweep has many configs", .wanted = "--check"});
  if (!is_folder) require_valid_run(sweep, context.registry);
  create_folders_durably(sweep.folder);
  {
    const FolderLock lock = lock_folder_within(sweep.folder, kSweepLockTimeout_ms);
    delete_stale_temporary_files(sweep.folder);
    if (!is_folder) store_or_compare(sweep, context.registry);
  }
  fs::current_path(sweep.plan.folder);
  return run_sweep(sweep.plan, {.folder = sweep.folder,
                                .program_name = context.argv[0],
                                .jobs = sweep.plan.jobs,
                                .quiet = request.quiet,
                                .json = request.json});
}

}  // namespace kindling
