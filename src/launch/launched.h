#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/launch/launch_environment.h"
#include "launch/parent_processes.h"
#include "launch/variable_reader.h"

namespace kindling {

// The variables in which a launcher stores the position of a process. The last one may be missing.
struct PlaceVariables {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};
inline constexpr PlaceVariables kPlainVariables{"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                                "LOCAL_WORLD_SIZE"};

// In the order of their distance from the process where nothing shows it. `other`: none of those below.
enum class LauncherKind { torchrun, open_mpi, mpich, slurm, other };

// A launcher's information, and the variables it was read from.
struct Launched {
  LaunchEnvironment environment{};
  PlaceVariables variables{};
  LauncherKind kind = LauncherKind::other;
  std::size_t depth = 0;  // the number of parents that have the same variables: the next one has set them
  std::string address{};  // of rank 0's machine; empty: unknown
  std::string job{};      // the same in all processes of a job, unique among jobs; empty: unknown
};

// Returns what a process knows from the variables named; nothing if they are not set. Throws ConfigError for
// incomplete or invalid ones.
std::optional<Launched> launched_place(const VariableReader& read, const PlaceVariables& names,
                                       LauncherKind kind = LauncherKind::other);

// Returns all launchers that this process descends from, the closest first.
std::vector<Launched> launchers_of(const VariableReader& read, const ParentProcesses& parents);

// Returns the launcher whose ranks train together; nothing if no launcher has started several. Throws
// ConfigError if the launchers contradict each other: if each process of one has started another, or if they
// start other programs too.
std::optional<Launched> deciding_launcher(const VariableReader& read, const ParentProcesses& parents);

// The rule of the public launch_environment(), for a process with these variables and parents. Without
// parents the variables alone decide.
std::optional<LaunchEnvironment> launch_environment(const Variables& variables,
                                                    const ParentProcesses& parents);

// True for the programs of Open MPI and MPICH that users call, as opposed to the daemons that they start on
// other machines.
bool is_mpi_command(const ParentProcess& process);

}  // namespace kindling
