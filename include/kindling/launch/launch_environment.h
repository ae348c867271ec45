#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// The position of a process among those that a launcher has started to train together.
struct LaunchEnvironment {
  std::int64_t rank = 0, size = 1;  // among all: 0 <= rank < size
  // Among those of its machine. If the launcher does not say: 0, and local_rank + 1.
  std::int64_t local_rank = 0, local_size = 1;
  std::string launcher{};        // for messages: "torchrun", "SLURM", "Open MPI", "MPICH", "kindling" …
  std::string master_address{};  // of the machine of rank 0, where the store listens; empty: store_file
  std::uint16_t master_port = 0;
  bool has_agent_store = false;        // torchrun's agent serves the store: every rank is a client of it
  std::int64_t restart_count = 0;      // number of restarts of this group by torchrun or kindling
  std::string restart_reason{};        // why the previous start ended, if the launcher says so
  std::filesystem::path store_file{};  // of processes that kindling has launched on this machine
};

// Returns the value of an environment variable; nullptr or an empty text if it is not set.
using Variables = std::function<const char*(const char* name)>;

// Returns the position that the launcher of this process has given it. If several launchers have set their
// variables, the closest one decides. The environments of the parent processes show which one that is; where
// they cannot be read, this order holds:
//   kindling   KINDLING_RANK, KINDLING_SIZE, KINDLING_STORE_FILE …, as run_local_processes() sets them
//   torchrun   TORCHELASTIC_RUN_ID with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK …
//   Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE …
//   MPICH      PMI_RANK and PMI_SIZE, unless they are those of a step of srun
//   SLURM      SLURM_PROCID and SLURM_STEP_NUM_TASKS of a step of srun
//   none       RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK if a machine has several ranks
// A launcher that has started a single process leaves the decision to the one outside. The shell of a batch
// script or of salloc is not a step and trains alone. MASTER_ADDR and MASTER_PORT take precedence over
// derived values: the first host of SLURM's list, 127.0.0.1 if all ranks of MPI are on one machine, a port
// derived from the job's name (of MPICH, from the command line of its daemon).
//
// Returns nothing if there are no other ranks, including a single process started by a launcher other than
// torchrun. Throws ConfigError for variables that are incomplete, not numbers, or contradict each other
// (RANK, WORLD_SIZE and LOCAL_RANK must agree with a launcher's own variables), for a launcher that each
// process of another one has started, and for programs of MPI whose ranks include other programs.
KINDLING_API std::optional<LaunchEnvironment> launch_environment();

// The same for a process with the variables given, without its parents.
KINDLING_API std::optional<LaunchEnvironment> launch_environment(const Variables& variables);

// Where the ranks of a group meet: on the machine of rank 0.
struct MasterAddress {
  std::string host{};
  std::uint16_t port = 0;
};

// Returns an address of this machine that other machines can reach, and a TCP port that is free now: for the
// rank 0 of a group that no launcher has started, which sends both to the others. Throws Error if no port can
// be bound.
KINDLING_API MasterAddress free_master_address();

}  // namespace kindling
