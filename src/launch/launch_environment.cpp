#include "kindling/launch/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "kindling/base/checksum.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"
#include "launch/slurm_lists.h"

namespace kindling {
namespace {

// Throws ConfigError that says what is wrong with a variable, what was expected, and what to do: a general
// hint by default.
[[noreturn]] void refuse_variable(const std::string& name, const std::string& found,
                                  const std::string& wanted, const std::string& remedy = "") {
  throw ConfigError(
      {.place = "environment variable " + name,
       .found = found,
       .wanted = wanted,
       .remedy = remedy.empty() ? "start all processes with one launcher (torchrun, srun, mpirun), or unset "
                                  "its variables to train with one process"
                                : remedy});
}

// Reads environment variables; throws ConfigError for invalid ones.
class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  bool has(const char* name) const { return text(name).has_value(); }
  std::optional<std::string> text(const char* name) const;
  // `because` is appended to the expected value: ", because WORLD_SIZE is 4".
  std::optional<std::int64_t> integer(const char* name, std::int64_t min, std::int64_t max,
                                      const std::string& because = "") const;

 private:
  const Variables& variables_;
};

std::optional<std::string> VariableReader::text(const char* name) const {
  const char* const value = variables_(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::int64_t> VariableReader::integer(const char* name, std::int64_t min, std::int64_t max,
                                                    const std::string& because) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const char* const end = value->data() + value->size();
  std::int64_t number = 0;
  const auto [stop, code] = std::from_chars(value->data(), end, number);
  if (code != std::errc() || stop != end || number < min || number > max)
    refuse_variable(name, "it is \"" + shortened(one_line(*value), 40) + "\"",
                    "a whole number from " + std::to_string(min) + " to " + std::to_string(max) + because);
  return number;
}

constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();  // c10d counts ranks by int

// The variables in which a launcher stores the position of a process. The last one may be missing.
struct PlaceVariables {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};
constexpr PlaceVariables kOwn{"kindling", "KINDLING_RANK", "KINDLING_SIZE", "KINDLING_RANK", "KINDLING_SIZE"};
constexpr PlaceVariables kPlain{"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                "LOCAL_WORLD_SIZE"};
constexpr PlaceVariables kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr PlaceVariables kMpich{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

// A launcher's information, and the variables it was read from.
struct Launched {
  LaunchEnvironment environment;
  PlaceVariables variables;
  std::string address{};  // of rank 0's machine; empty: unknown
  std::string job{};      // the same in all processes of a job, unique among jobs; empty: unknown
};

std::optional<Launched> place_by(const VariableReader& read, const PlaceVariables& names) {
  if (!read.has(names.rank) && !read.has(names.size)) return std::nullopt;
  for (const auto& [name, other] : {std::pair(names.rank, names.size), std::pair(names.size, names.rank)})
    if (!read.has(name)) refuse_variable(name, std::string("it is not set, but ") + other + " is", "both");
  LaunchEnvironment at{.launcher = names.launcher};
  at.size = *read.integer(names.size, 1, kMaxSize);
  const std::string because = std::string(", because ") + names.size + " is " + std::to_string(at.size);
  at.rank = *read.integer(names.rank, 0, at.size - 1, because);
  at.local_rank = read.integer(names.local_rank, 0, at.size - 1, because).value_or(0);
  at.local_size = at.local_rank + 1;
  if (names.local_size != nullptr)
    at.local_size = read.integer(names.local_size, at.local_rank + 1, at.size,
                                 because + " and " + names.local_rank + " " + std::to_string(at.local_rank))
                        .value_or(at.local_size);
  return Launched{at, names};
}

// 127.0.0.1 if all ranks are on this machine according to the launcher.
std::optional<Launched> mpi_place(const VariableReader& read, const PlaceVariables& names) {
  auto launched = place_by(read, names);
  if (!launched) return launched;
  if (launched->environment.local_size == launched->environment.size) launched->address = "127.0.0.1";
  for (const char* job : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (launched->job.empty()) launched->job = read.text(job).value_or("");
  return launched;
}

// True if srun has started this process as part of a step. The shells of batch scripts and of salloc also see
// the requested values, such as SLURM_NTASKS, but are not in a step, or in one with a number at the upper end
// of the range.
bool is_in_slurm_step(const VariableReader& read) {
  constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
  return read.integer("SLURM_STEP_ID", 0, 0xffffffff).value_or(kFirstSpecialStep) < kFirstSpecialStep;
}

std::int64_t slurm_local_size(const VariableReader& read, const LaunchEnvironment& at) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (const auto list = read.text(name)) {
      const auto node = read.integer("SLURM_NODEID", 0, kMaxSize);
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

std::optional<Launched> slurm_place(const VariableReader& read) {
  if (!is_in_slurm_step(read)) return std::nullopt;
  const char* const size = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  auto launched = place_by(read, {"SLURM", "SLURM_PROCID", size, "SLURM_LOCALID", nullptr});
  if (!launched) return launched;
  launched->environment.local_size = slurm_local_size(read, launched->environment);
  launched->address = slurm_address(read);
  if (const auto job = read.text("SLURM_JOB_ID")) launched->job = *job + "." + *read.text("SLURM_STEP_ID");
  return launched;
}

bool is_same_place(const LaunchEnvironment& a, const LaunchEnvironment& b) {
  return a.rank == b.rank && a.size == b.size;
}

// Returns the launcher that has started this process as one of several.
std::optional<Launched> outer_launcher(const VariableReader& read) {
  const auto of_several = [](const std::optional<Launched>& launched) {
    return launched && launched->environment.size > 1;
  };
  if (auto open_mpi = mpi_place(read, kOpenMpi); of_several(open_mpi)) return open_mpi;
  auto mpich = mpi_place(read, kMpich);
  auto slurm = slurm_place(read);
  // srun speaks PMI as well; different numbers belong to processes that its tasks have started.
  if (slurm && (!mpich || is_same_place(mpich->environment, slurm->environment))) mpich = std::move(slurm);
  return of_several(mpich) ? mpich : std::nullopt;
}

// Values that were set by hand must agree with the launcher; otherwise a group would wait for ranks that do
// not exist.
void require_agreement(const VariableReader& read, const Launched& launched) {
  const LaunchEnvironment& at = launched.environment;
  const PlaceVariables& names = launched.variables;
  const auto require = [&](const char* name, const char* other, std::int64_t wanted) {
    const auto found = read.integer(name, 0, kMaxSize);
    if (found && *found != wanted)
      refuse_variable(name,
                      "it is " + std::to_string(*found) + ", but " + at.launcher + "'s " + other + " is " +
                          std::to_string(wanted),
                      "the same number",
                      std::string("unset ") + name + " to use the numbers of " + at.launcher);
  };
  require("RANK", names.rank, at.rank);
  require("WORLD_SIZE", names.size, at.size);
  require("LOCAL_RANK", names.local_rank, at.local_rank);
}

// Free on most machines: below the range of ephemeral ports.
std::uint16_t port_by_name(const std::string& job) {
  Checksum checksum;
  checksum.update(job);
  return static_cast<std::uint16_t>(15000 + checksum.value() % 15000);
}

void find_master(const VariableReader& read, Launched& launched) {
  LaunchEnvironment& at = launched.environment;
  const std::string remedy =
      "set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a port that is free there, the same "
      "for all processes";
  at.master_address = read.text("MASTER_ADDR").value_or(launched.address);
  if (at.master_address.empty())
    refuse_variable("MASTER_ADDR", "it is not set and cannot be derived", "the address of rank 0", remedy);
  if (std::ranges::any_of(at.master_address, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    refuse_variable("MASTER_ADDR", "it contains spaces", "the name or the address of a machine", remedy);
  if (const auto port = read.integer("MASTER_PORT", 1, 65535))
    at.master_port = static_cast<std::uint16_t>(*port);
  else if (!launched.job.empty())
    at.master_port = port_by_name(launched.job);
  else
    refuse_variable("MASTER_PORT", "it is not set and cannot be derived", "the port of the store of rank 0",
                    remedy);
}

std::optional<LaunchEnvironment> own_environment(const VariableReader& read) {
  auto launched = place_by(read, kOwn);
  if (!launched) return std::nullopt;
  const auto file = read.text("KINDLING_STORE_FILE");
  if (!file) refuse_variable("KINDLING_STORE_FILE", "it is not set, but KINDLING_RANK is", "both");
  launched->environment.store_file = *file;
  launched->environment.restart_count = read.integer("KINDLING_RESTART_COUNT", 0, kMaxSize).value_or(0);
  launched->environment.restart_reason = read.text("KINDLING_RESTART_REASON").value_or("");
  return launched->environment;
}

LaunchEnvironment torchrun_environment(const VariableReader& read) {
  auto launched = place_by(read, kPlain);
  if (!launched) refuse_variable("RANK", "it is not set, but TORCHELASTIC_RUN_ID is", "both");
  launched->environment.launcher = "torchrun";
  find_master(read, *launched);
  launched->environment.has_agent_store = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launched->environment.restart_count = read.integer("TORCHELASTIC_RESTART_COUNT", 0, kMaxSize).value_or(0);
  return launched->environment;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

// The processes were started by hand, or by an unknown launcher.
std::optional<Launched> plain_place(const VariableReader& read) {
  auto launched = place_by(read, kPlain);
  if (!launched || launched->environment.size == 1) return std::nullopt;
  LaunchEnvironment& at = launched->environment;
  const bool all_are_here = is_loopback(read.text("MASTER_ADDR").value_or(""));
  if (all_are_here && !read.has("LOCAL_RANK")) {
    at.local_rank = at.rank;
    at.local_size = at.size;
  }
  return launched;
}

}  // namespace

std::optional<LaunchEnvironment> launch_environment(const Variables& variables) {
  const VariableReader read(variables);
  if (auto own = own_environment(read)) return own->size > 1 ? own : std::nullopt;
  if (read.has("TORCHELASTIC_RUN_ID")) return torchrun_environment(read);
  auto launched = outer_launcher(read);
  if (launched)
    require_agreement(read, *launched);
  else
    launched = plain_place(read);
  if (!launched) return std::nullopt;
  find_master(read, *launched);
  return launched->environment;
}

}  // namespace kindling
