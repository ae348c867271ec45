#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/error.h"
#include "launch/launched.h"

namespace kindling {
namespace {

bool is_same_place(const LaunchEnvironment& a, const LaunchEnvironment& b) {
  return a.rank == b.rank && a.size == b.size;
}

std::string position_text(const Launched& launched) {
  const LaunchEnvironment& at = launched.environment;
  return std::string(launched.variables.launcher) + " (rank " + std::to_string(at.rank) + " of " +
         std::to_string(at.size) + ")";
}

// The command with which a launcher starts `count` ranks.
std::string command_of(LauncherKind kind, std::int64_t count) {
  switch (kind) {
    case LauncherKind::torchrun:
      return "torchrun --standalone --no-python --nproc-per-node=" + std::to_string(count) + " PROGRAM";
    case LauncherKind::open_mpi:
      return "mpirun -np " + std::to_string(count) + " PROGRAM";
    case LauncherKind::mpich:
      return "mpiexec -n " + std::to_string(count) + " PROGRAM";
    case LauncherKind::slurm:
    case LauncherKind::other:
      break;
  }
  return "srun --ntasks=" + std::to_string(count) + " PROGRAM";
}

[[noreturn]] void refuse_nested(const Launched& outer, const Launched& inner) {
  const std::int64_t count = outer.environment.size * inner.environment.size;
  std::string remedy = "start all ranks with one of them: " +
                       command_of(outer.kind == LauncherKind::torchrun ? inner.kind : outer.kind, count);
  if (inner.kind == LauncherKind::torchrun && outer.kind != LauncherKind::torchrun)
    remedy += ", or give each torchrun --nnodes=" + std::to_string(outer.environment.size) +
              " and the same --rdzv-backend=c10d --rdzv-endpoint=HOST:29400";
  if (outer.kind != inner.kind)
    remedy += "; unset " +
              (outer.kind == LauncherKind::slurm
                   ? "SLURM_STEP_ID"
                   : std::string(outer.variables.rank) + " and " + outer.variables.size) +
              " to train separately in each process of " + outer.variables.launcher;
  throw ConfigError({.place = "launchers of this process",
                     .found = position_text(inner) + " runs inside " + position_text(outer) +
                              ", so each process of " + outer.variables.launcher + " starts ranks of its own",
                     .wanted = "one launcher that starts all ranks",
                     .remedy = remedy});
}

// The daemons of mpirun and mpiexec are the tasks of a step of SLURM, one on each machine, rather than the
// commands themselves.
bool are_daemons_of_step(const Launched& step, const Launched& mpi, const ParentProcesses& parents) {
  if (step.kind != LauncherKind::slurm || mpi.kind == LauncherKind::torchrun) return false;
  if (parents.empty()) return mpi.environment.local_size < mpi.environment.size;
  const auto end = std::min(step.depth, parents.size());
  return mpi.depth <= end && std::none_of(parents.begin() + static_cast<std::ptrdiff_t>(mpi.depth),
                                          parents.begin() + static_cast<std::ptrdiff_t>(end), is_mpi_command);
}

// True if the ranks of the inner launcher are all those that the processes of the outer one have started.
bool may_contain(const Launched& outer, const Launched& inner, const ParentProcesses& parents) {
  if (outer.kind == LauncherKind::torchrun) return false;
  // One torchrun in each process, which together make one world.
  if (inner.kind == LauncherKind::torchrun) return inner.environment.local_size < inner.environment.size;
  return are_daemons_of_step(outer, inner, parents);
}

// The daemon of MPICH that starts its processes, or its mpiexec.
bool is_of_mpich(const ParentProcess& process) {
  const std::string name = program_name(process);
  return name == "hydra_pmi_proxy" || name.starts_with("mpiexec");
}

// MPICH sets the number of its ranks on this machine, which a step inside inherits. `srun --mpi=pmi2` does
// not, but replaces the other variables, and may do so for the only rank of MPICH.
bool has_ranks_of_mpich(const VariableReader& read) {
  const auto local_size = read.text("MPI_LOCALNRANKS");
  return local_size && (*local_size != "1" || !read.text("SLURM_MPI_TYPE").value_or("").starts_with("pmi"));
}

// srun speaks PMI as well, and knows its hosts. Other numbers, or those of its machine, come from MPICH.
void remove_pmi_of_srun(std::vector<Launched>& all, const VariableReader& read,
                        const ParentProcesses& parents) {
  if (has_ranks_of_mpich(read)) return;
  const auto step = std::ranges::find(all, LauncherKind::slurm, &Launched::kind);
  if (step == all.end()) return;
  const Launched slurm = *step;
  std::erase_if(all, [&](const Launched& launched) {
    const auto begin = std::min(launched.depth, parents.size());
    return launched.kind == LauncherKind::mpich && is_same_place(launched.environment, slurm.environment) &&
           std::none_of(parents.begin() + static_cast<std::ptrdiff_t>(begin), parents.end(), is_of_mpich);
  });
}

// The arguments of mpirun or mpiexec for each of the programs that it starts.
std::vector<std::span<const std::string>> programs_of(const std::vector<std::string>& command) {
  std::vector<std::span<const std::string>> programs;
  for (auto first = command.begin(); first != command.end();) {
    const auto last = std::find(first, command.end(), ":");
    programs.emplace_back(first, last);
    first = last == command.end() ? last : std::next(last);
  }
  return programs;
}

// True if a word that is neither an option nor a number is in the arguments of all programs.
bool may_be_one_program(const std::vector<std::span<const std::string>>& programs) {
  const auto is_word = [](const std::string& text) {
    return !text.starts_with('-') && !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  return std::ranges::any_of(programs.back(), [&](const std::string& text) {
    return is_word(text) && std::ranges::all_of(programs, [&](const auto& program) {
             return std::ranges::find(program, text) != program.end();
           });
  });
}

// Ranks of another program would never join.
void require_one_program(const Launched& launched, const ParentProcesses& parents) {
  if (launched.kind != LauncherKind::open_mpi && launched.kind != LauncherKind::mpich) return;
  // Without the command, such as on another machine, nothing shows whether they are several programs.
  const auto command = std::ranges::find_if(parents, is_mpi_command);
  if (command == parents.end()) return;
  const auto programs = programs_of(command->command);
  const auto count = static_cast<std::int64_t>(programs.size());
  if (count <= 1 || may_be_one_program(programs)) return;
  throw ConfigError({.place = "launchers of this process",
                     .found = std::string(launched.variables.launcher) + " starts " + std::to_string(count) +
                              " programs as one world (PROGRAM : OTHER), but ranks of other programs do not "
                              "join the training",
                     .wanted = "one program for all ranks",
                     .remedy = "start it alone: " + command_of(launched.kind, launched.environment.size) +
                               "; if all of them start this program, do it by one script"});
}

}  // namespace

bool is_mpi_command(const ParentProcess& process) {
  const std::string name = program_name(process);
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"mpirun", "mpiexec", "orterun", "prterun", "prun"},
      [&](std::string_view start) { return name.starts_with(start); });
}

std::optional<Launched> deciding_launcher(const VariableReader& read, const ParentProcesses& parents) {
  std::vector<Launched> all = launchers_of(read, parents);
  remove_pmi_of_srun(all, read, parents);
  const Launched* inner = nullptr;
  for (const Launched& launched : all) {
    // A single process is one of the ranks of the launcher outside.
    if (launched.environment.size == 1 && launched.kind != LauncherKind::torchrun) continue;
    // The shell of `srun --pty` is alone in its step.
    if (inner != nullptr && launched.kind == LauncherKind::slurm && read.has("SLURM_PTY_PORT")) continue;
    if (inner != nullptr && !may_contain(launched, *inner, parents)) refuse_nested(launched, *inner);
    if (inner == nullptr) inner = &launched;
  }
  if (inner == nullptr) return std::nullopt;
  require_one_program(*inner, parents);
  return *inner;
}

}  // namespace kindling
