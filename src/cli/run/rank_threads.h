#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cli/run/fit_processes.h"
#include "kindling/training/trainer_options.h"

// The number of operator threads of each rank.
namespace kindling {

// The cores that one rank may use.
struct RankCores {
  std::string machine{};
  std::set<std::int64_t> cores{};
  std::set<std::int64_t> launcher_cores{};  // of the process that started it
};

// A rank's part of the cores of its machine.
struct RankThreads {
  std::int64_t num_threads = 1;
  std::string reason{};   // "2 threads for operators, because 2 ranks share 4 cores of this machine"
  std::string warning{};  // about cores that are shared or stay unused; empty: none
};

// Returns the part of `rank`. A core that several ranks may use counts for each of them by its fraction.
RankThreads threads_of_rank(std::size_t rank, const std::vector<RankCores>& ranks);

// Returns the cores in a list of the kernel such as "0-3,8"; those before the first error in others.
std::set<std::int64_t> cores_in_list(const std::string& list);

// Sets the number of operator threads of this process, unless trainer.num_threads or OMP_NUM_THREADS is set:
// its part of the cores. LibTorch would use all cores in each rank, and a single one in a process of MPI,
// because of MKL. Returns what it has set; without a reason if it has set nothing. Called by all ranks.
RankThreads set_rank_threads(const Group& group, const TrainerOptions& trainer);

}  // namespace kindling
