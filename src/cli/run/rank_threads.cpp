#include "cli/run/rank_threads.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>

#include "base/joined.h"
namespace kindling {
namespace {

// Returns the rest of the line of a process's status that starts with `key`.
std::string status_of(const std::string& process, const std::string& key) {
  std::ifstream file("/proc/" + process + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), key.size() + 1));
  return {};
}

std::string allowed_cores(const std::string& process) { return status_of(process, "Cpus_allowed_list:"); }

// Containers of one machine have different names and the same boot.
std::string machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? "?" : id;
}

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Launchers of MPI may bind each process to a part of the cores that they have. MKL answers with one thread
// in a process that has one of these variables.
constexpr const char* kLocalSizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};

bool is_process_of_mpi() { return std::ranges::any_of(kLocalSizes, is_set); }

// True for a process of MPI without others on this machine.
bool is_only_process_of_mpi() {
  return is_process_of_mpi() && std::ranges::all_of(kLocalSizes, [](const char* name) {
           return !is_set(name) || std::string_view(std::getenv(name)) == "1";
         });
}

// "machine cores cores-of-the-launcher"
std::string own_cores_text() {
  const std::string launcher = is_process_of_mpi() ? " " + allowed_cores(std::to_string(::getppid())) : "";
  return machine_id() + " " + allowed_cores("self") + launcher;
}

RankCores rank_cores(const std::string& text) {
  std::istringstream words(text);
  std::string machine, cores, launcher_cores;
  words >> machine >> cores >> launcher_cores;
  return {machine, cores_in_list(cores), cores_in_list(launcher_cores)};
}

// The number of ranks that may use each core of a machine.
using CoreUsers = std::map<std::int64_t, std::int64_t>;

CoreUsers users_on(const std::string& machine, const std::vector<RankCores>& ranks) {
  CoreUsers users;
  for (const RankCores& other : ranks)
    if (other.machine == machine)
      for (const std::int64_t core : other.cores) ++users[core];
  return users;
}

std::int64_t num_threads_of(const RankCores& rank, const CoreUsers& users) {
  double part = 0;
  for (const std::int64_t core : rank.cores) part += 1. / static_cast<double>(users.at(core));
  constexpr double kRounding = 1e-6;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(part + kRounding));
}

// Returns the number of cores that the launcher has and that none of its ranks may use.
std::int64_t num_unbound(const std::string& machine, const std::vector<RankCores>& ranks,
                         const CoreUsers& users) {
  std::set<std::int64_t> unbound;
  for (const RankCores& other : ranks)
    if (other.machine == machine)
      for (const std::int64_t core : other.launcher_cores)
        if (!users.contains(core)) unbound.insert(core);
  return std::ssize(unbound);
}

}  // namespace

std::set<std::int64_t> cores_in_list(const std::string& list) {
  std::set<std::int64_t> cores;
  std::istringstream stream(list);
  for (std::int64_t first = 0; stream >> first;) {
    std::int64_t last = first;
    if (stream.peek() == '-' && (stream.ignore(), !(stream >> last))) return cores;
    constexpr std::int64_t kMaxCore = 1 << 20;
    for (std::int64_t core = first; core <= std::min(last, kMaxCore); ++core) cores.insert(core);
    if (stream.peek() != ',') return cores;
    stream.ignore();
  }
  return cores;
}

RankThreads threads_of_rank(std::size_t rank, const std::vector<RankCores>& ranks) {
  const std::string& machine = ranks[rank].machine;
  const CoreUsers users = users_on(machine, ranks);
  std::int64_t num_ranks = 0, num_used = 0;
  for (const RankCores& other : ranks)
    if (other.machine == machine) {
      ++num_ranks;
      num_used += num_threads_of(other, users);
    }
  const std::int64_t num_cores = std::ssize(users), num_unused = num_cores - num_used;
  RankThreads threads{.num_threads = num_threads_of(ranks[rank], users)};
  const std::string use = counted(num_ranks, "rank") + (num_ranks == 1 ? " has " : " share ") +
                          counted(num_cores, "core") + " of this machine";
  threads.reason = counted(threads.num_threads, "thread") + " for operators, because " + use;
  if (const std::int64_t unbound = num_unbound(machine, ranks, users); unbound > 0)
    threads.warning = "the launcher binds its ranks to " + counted(num_cores, "core") +
                      " of this machine and leaves " + std::to_string(unbound) +
                      " unused; start more ranks, or give them all cores (mpirun --bind-to none)";
  else if (num_unused < 0)
    threads.warning = use + ", so they wait for each other; start at most one rank per core";
  else if (num_unused > 0)
    threads.warning = use + " and leave " + std::to_string(num_unused) +
                      " unused; start a number of ranks that divides the number of cores";
  return threads;
}

RankThreads set_rank_threads(const Group& group, const TrainerOptions& trainer) {
  const std::string own_text = own_cores_text();
  std::vector<RankCores> ranks;
  for (const std::string& text : group ? group->all_gather(own_text) : std::vector<std::string>{own_text})
    ranks.push_back(rank_cores(text));
  const std::size_t own = group ? static_cast<std::size_t>(group->rank()) : 0;
  // OMP_PROC_BIND has bound this thread to one of the cores of the process, so that their number is unknown.
  const bool is_decided = trainer.num_threads || is_set("OMP_NUM_THREADS") || is_set("MKL_NUM_THREADS") ||
                          is_set("OMP_PROC_BIND");
  const bool is_right_already = !group && !is_only_process_of_mpi();
  if (is_decided || is_right_already || ranks[own].cores.empty()) return {};  // or the system hides them
  RankThreads threads = threads_of_rank(own, ranks);
  at::set_num_threads(static_cast<int>(threads.num_threads));
  return threads;
}

}  // namespace kindling
