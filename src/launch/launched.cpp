#include "launch/launched.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "kindling/base/error.h"
#include "launch/slurm_lists.h"

namespace kindling {
namespace {

constexpr PlaceVariables kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr PlaceVariables kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr PlaceVariables kMpich{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

// The title of the daemon of a step, "slurmstepd: [7.0]", of a batch script, "slurmstepd: [7.batch]"; spaces
// may follow.
constexpr std::string_view kStepTitle = "slurmstepd: [";

bool is_step_daemon(const ParentProcess& process) {
  return !process.command.empty() && process.command.front().starts_with(kStepTitle);
}

std::optional<Launched> torchrun_place(const VariableReader& read) {
  if (!read.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  auto launched = launched_place(read, kTorchrun, LauncherKind::torchrun);
  if (!launched) refuse_variable("RANK", "it is not set, but TORCHELASTIC_RUN_ID is", "both");
  return launched;
}

// 127.0.0.1 if all ranks are on this machine according to the launcher.
std::optional<Launched> mpi_place(const VariableReader& read, const PlaceVariables& names,
                                  LauncherKind kind) {
  auto launched = launched_place(read, names, kind);
  if (launched && launched->environment.local_size == launched->environment.size)
    launched->address = "127.0.0.1";
  return launched;
}

std::optional<Launched> open_mpi_place(const VariableReader& read) {
  auto launched = mpi_place(read, kOpenMpi, LauncherKind::open_mpi);
  for (const char* job : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (launched && launched->job.empty()) launched->job = read.text(job).value_or("");
  return launched;
}

// MPICH's variables are the same in all jobs. Its daemons, one on each machine, have the address of the
// job's mpiexec on their command lines.
std::string mpich_job(std::span<const ParentProcess> parents) {
  for (const ParentProcess& process : parents)
    if (program_name(process) == "hydra_pmi_proxy") {
      const auto port = std::ranges::find(process.command, "--control-port");
      return port == process.command.end() || std::next(port) == process.command.end() ? ""
                                                                                       : *std::next(port);
    }
  return "";
}

std::optional<Launched> mpich_place(const VariableReader& read, const ParentProcesses& parents) {
  auto launched = mpi_place(read, kMpich, LauncherKind::mpich);
  if (launched) launched->job = mpich_job(parents);
  return launched;
}

// The shell of a batch script that was submitted from inside a step inherits that step's variables. Its
// daemon's title tells, and SLURM_GTIDS, the ranks on this machine, which each daemon sets.
bool has_inherited_step(const VariableReader& read, const ParentProcesses& parents) {
  const auto daemon = std::ranges::find_if(parents, is_step_daemon);
  if (daemon != parents.end()) {
    const std::string& title = daemon->command.front();
    return std::ranges::any_of(
        std::initializer_list<std::string_view>{".batch]", ".extern]", ".interactive]"},
        [&](std::string_view end) { return title.find(end) != std::string::npos; });
  }
  const auto ranks = read.text("SLURM_GTIDS");
  const auto tasks = read.text("SLURM_STEP_TASKS_PER_NODE");
  if (!ranks || !tasks) return false;
  const auto here = tasks_of_node(*tasks, read.integer("SLURM_NODEID", 0, kMaxRanks).value_or(0));
  return here && *here != std::ranges::count(*ranks, ',') + 1;
}

// True if srun has started this process as part of a step. The shells of batch scripts and of salloc also see
// the requested values, such as SLURM_NTASKS, but are not in a step, or in one with a number at the upper end
// of the range.
bool is_in_slurm_step(const VariableReader& read, const ParentProcesses& parents) {
  constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
  return read.integer("SLURM_STEP_ID", 0, 0xffffffff).value_or(kFirstSpecialStep) < kFirstSpecialStep &&
         !has_inherited_step(read, parents);
}

std::int64_t slurm_local_size(const VariableReader& read, const LaunchEnvironment& at) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (const auto list = read.text(name)) {
      const auto node = read.integer("SLURM_NODEID", 0, kMaxRanks);
      const auto tasks = node ? tasks_of_node(*list, *node) : at.local_size;
      if (!tasks || *tasks <= at.local_rank || *tasks > at.size)
        refuse_variable(name, "it is \"" + *list + "\"",
                        "the tasks of each node, more than " + std::to_string(at.local_rank) + " for node " +
                            std::to_string(*node));
      return *tasks;
    }
  return at.local_size;
}

std::string slurm_address(const VariableReader& read) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
    if (const auto list = read.text(name)) {
      if (const auto host = first_host(*list)) return *host;
      refuse_variable(name, "it is \"" + *list + "\"", "hosts as in node[003-007,9]");
    }
  return "";
}

std::optional<Launched> slurm_place(const VariableReader& read, const ParentProcesses& parents) {
  if (!is_in_slurm_step(read, parents)) return std::nullopt;
  const char* const size = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  auto launched =
      launched_place(read, {"SLURM", "SLURM_PROCID", size, "SLURM_LOCALID", nullptr}, LauncherKind::slurm);
  if (!launched) return launched;
  launched->environment.local_size = slurm_local_size(read, launched->environment);
  launched->address = slurm_address(read);
  if (const auto job = read.text("SLURM_JOB_ID")) launched->job = *job + "." + *read.text("SLURM_STEP_ID");
  return launched;
}

// Returns what tells a start by this launcher from another one.
std::vector<const char*> telling_variables(const Launched& launched) {
  const PlaceVariables& names = launched.variables;
  switch (launched.kind) {
    case LauncherKind::torchrun:
      return {names.rank, names.size, "TORCHELASTIC_RUN_ID"};
    case LauncherKind::open_mpi:
      return {names.rank, names.size, "PMIX_NAMESPACE"};
    case LauncherKind::mpich:
      return {names.rank, names.size, "PMI_FD"};
    case LauncherKind::slurm:
      return {names.rank, "SLURM_STEP_ID", "SLURM_JOB_ID"};
    case LauncherKind::other:
      break;
  }
  return {names.rank, names.size};
}

std::string value_in(const ParentProcess& process, const char* name) {
  if (!process.variables) return "";
  const auto found = process.variables->find(name);
  return found == process.variables->end() ? "" : found->second;
}

// `one`, `other`: the telling variables of two processes. A wrapper may have removed the last one.
bool are_of_one_start(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  return one == other ||
         (one[0] == other[0] && one[1] == other[1] && (one.back().empty() || other.back().empty()));
}

// Adds the launchers of the same kind that the launcher itself was started by: their variables are replaced
// in this process, but its parents still have them. srun is not a parent. RANK and WORLD_SIZE without the
// rest of torchrun's variables are the options of the one that has started this process.
void add_outer_ones(std::vector<Launched>& all, Launched launched, const VariableReader& read,
                    const ParentProcesses& parents) {
  if (launched.kind == LauncherKind::slurm) return;
  std::vector<std::string> latest;
  for (const char* name : telling_variables(launched)) latest.push_back(read.text(name).value_or(""));
  const auto number = [](const std::string& text) {
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const auto values_of = [&](const ParentProcess& process) {
    std::vector<std::string> values;
    for (const char* name : telling_variables(launched)) values.push_back(value_in(process, name));
    return values;
  };
  while (launched.depth < parents.size()) {
    const auto values = values_of(parents[launched.depth]);
    while (launched.depth < parents.size() && values_of(parents[launched.depth]) == values) ++launched.depth;
    if (values[0].empty() || values[1].empty()) continue;
    if (launched.kind == LauncherKind::torchrun && values.back().empty()) continue;
    if (are_of_one_start(values, latest)) continue;
    latest = values;
    launched.environment.rank = number(values[0]);
    launched.environment.size = number(values[1]);
    launched.job = launched.kind == LauncherKind::open_mpi ? values.back()
                   : launched.kind == LauncherKind::mpich
                       ? mpich_job(std::span(parents).subspan(std::min(launched.depth, parents.size())))
                       : "";
    all.push_back(launched);
  }
}

// Which launcher a parent is, if its name says so: what it has started inherits variables of launchers
// further away, of which none of its own parents has any if they came from another machine.
LauncherKind launcher_named(const ParentProcess& process) {
  if (is_step_daemon(process)) return LauncherKind::slurm;
  const std::string name = program_name(process);
  if (name == "hydra_pmi_proxy") return LauncherKind::mpich;
  return name == "orted" || name == "prted" ? LauncherKind::open_mpi : LauncherKind::other;
}

}  // namespace

std::optional<Launched> launched_place(const VariableReader& read, const PlaceVariables& names,
                                       LauncherKind kind) {
  if (!read.has(names.rank) && !read.has(names.size)) return std::nullopt;
  for (const auto& [name, other] : {std::pair(names.rank, names.size), std::pair(names.size, names.rank)})
    if (!read.has(name)) refuse_variable(name, std::string("it is not set, but ") + other + " is", "both");
  LaunchEnvironment at{.launcher = names.launcher};
  at.size = *read.integer(names.size, 1, kMaxRanks);
  const std::string because = std::string(", because ") + names.size + " is " + std::to_string(at.size);
  at.rank = *read.integer(names.rank, 0, at.size - 1, because);
  at.local_rank = read.integer(names.local_rank, 0, at.size - 1, because).value_or(0);
  at.local_size = at.local_rank + 1;
  if (names.local_size != nullptr)
    at.local_size = read.integer(names.local_size, at.local_rank + 1, at.size,
                                 because + " and " + names.local_rank + " " + std::to_string(at.local_rank))
                        .value_or(at.local_size);
  return Launched{.environment = at, .variables = names, .kind = kind};
}

std::vector<Launched> launchers_of(const VariableReader& read, const ParentProcesses& parents) {
  std::vector<Launched> all;
  const auto place_of = [&](LauncherKind kind) {
    switch (kind) {
      case LauncherKind::torchrun:
        return torchrun_place(read);
      case LauncherKind::open_mpi:
        return open_mpi_place(read);
      case LauncherKind::mpich:
        return mpich_place(read, parents);
      default:
        return slurm_place(read, parents);
    }
  };
  for (const LauncherKind kind :
       {LauncherKind::torchrun, LauncherKind::open_mpi, LauncherKind::mpich, LauncherKind::slurm}) {
    std::optional<Launched> launched;
    try {
      launched = place_of(kind);
    } catch (const ConfigError&) {
      if (all.empty()) throw;  // else the leftovers of another one
    }
    if (!launched) continue;
    Launched found = *launched;
    const auto has_same = [&](const ParentProcess& process) {
      return std::ranges::all_of(telling_variables(found), [&](const char* name) {
        return value_in(process, name) == read.text(name).value_or("");
      });
    };
    found.depth = static_cast<std::size_t>(std::ranges::find_if_not(parents, has_same) - parents.begin());
    all.push_back(found);
    add_outer_ones(all, found, read, parents);
  }
  const auto distance = [&](const Launched& launched) {
    const bool is_named =
        launched.depth < parents.size() && launcher_named(parents[launched.depth]) == launched.kind;
    return std::tuple(launched.depth, !is_named, launched.kind);
  };
  std::ranges::sort(all, {}, distance);
  return all;
}

}  // namespace kindling
