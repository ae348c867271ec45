#include "kindling/launch/launch_environment.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "kindling/base/checksum.h"
#include "launch/launched.h"
#include "launch/parent_processes.h"
#include "launch/variable_reader.h"

namespace kindling {
namespace {

constexpr PlaceVariables kOwn{"kindling", "KINDLING_RANK", "KINDLING_SIZE", "KINDLING_RANK", "KINDLING_SIZE"};

// Values that were set by hand must agree with the launcher; otherwise a group would wait for ranks that do
// not exist.
void require_agreement(const VariableReader& read, const Launched& launched) {
  const LaunchEnvironment& at = launched.environment;
  const PlaceVariables& names = launched.variables;
  const auto require = [&](const char* name, const char* other, std::int64_t wanted) {
    const auto found = read.integer(name, 0, kMaxRanks);
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

// Returns how the launcher passes a variable to all processes.
std::string passed_by(LauncherKind kind, const std::string& name, const std::string& value) {
  switch (kind) {
    case LauncherKind::open_mpi:
      return ": mpirun -x " + name + "=" + value + " …";
    case LauncherKind::mpich:
      return ": mpiexec -genv " + name + " " + value + " …";
    default:
      return "";
  }
}

void find_master(const VariableReader& read, Launched& launched) {
  LaunchEnvironment& at = launched.environment;
  const auto remedy = [&](const std::string& name, const std::string& value, const std::string& what) {
    return "set " + name + " to " + what + ", the same for all processes" +
           passed_by(launched.kind, name, value);
  };
  const std::string address_remedy = remedy("MASTER_ADDR", "HOST", "the machine of rank 0");
  at.master_address = read.text("MASTER_ADDR").value_or(launched.address);
  if (at.master_address.empty())
    refuse_variable("MASTER_ADDR", "it is not set and cannot be derived", "the address of rank 0",
                    address_remedy);
  if (std::ranges::any_of(at.master_address, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    refuse_variable("MASTER_ADDR", "it contains spaces", "the name or the address of a machine",
                    address_remedy);
  if (const auto port = read.integer("MASTER_PORT", 1, 65535))
    at.master_port = static_cast<std::uint16_t>(*port);
  else if (!launched.job.empty())
    at.master_port = port_by_name(launched.job);
  else
    refuse_variable("MASTER_PORT", "it is not set and cannot be derived", "the port of the store of rank 0",
                    remedy("MASTER_PORT", "29500", "a port that is free on the machine of rank 0"));
}

std::optional<LaunchEnvironment> own_environment(const VariableReader& read) {
  auto launched = launched_place(read, kOwn);
  if (!launched) return std::nullopt;
  const auto file = read.text("KINDLING_STORE_FILE");
  if (!file) refuse_variable("KINDLING_STORE_FILE", "it is not set, but KINDLING_RANK is", "both");
  launched->environment.store_file = *file;
  launched->environment.restart_count = read.integer("KINDLING_RESTART_COUNT", 0, kMaxRanks).value_or(0);
  launched->environment.restart_reason = read.text("KINDLING_RESTART_REASON").value_or("");
  return launched->environment;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

// The processes were started by hand, or by an unknown launcher.
std::optional<Launched> plain_place(const VariableReader& read) {
  auto launched = launched_place(read, kPlainVariables);
  if (!launched || launched->environment.size == 1) return std::nullopt;
  LaunchEnvironment& at = launched->environment;
  const bool all_are_here = is_loopback(read.text("MASTER_ADDR").value_or(""));
  if (all_are_here && !read.has("LOCAL_RANK")) {
    at.local_rank = at.rank;
    at.local_size = at.size;
  }
  return launched;
}

void add_facts_of_torchrun(const VariableReader& read, LaunchEnvironment& at) {
  at.has_agent_store = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  at.restart_count = read.integer("TORCHELASTIC_RESTART_COUNT", 0, kMaxRanks).value_or(0);
}

}  // namespace

std::optional<LaunchEnvironment> launch_environment(const Variables& variables,
                                                    const ParentProcesses& parents) {
  const VariableReader read(variables);
  if (auto own = own_environment(read)) return own->size > 1 ? own : std::nullopt;
  auto launched = deciding_launcher(read, parents);
  if (!launched)
    launched = plain_place(read);
  else if (launched->kind != LauncherKind::torchrun)
    require_agreement(read, *launched);
  if (!launched) return std::nullopt;
  find_master(read, *launched);
  if (launched->kind == LauncherKind::torchrun) add_facts_of_torchrun(read, launched->environment);
  return launched->environment;
}

std::optional<LaunchEnvironment> launch_environment(const Variables& variables) {
  return launch_environment(variables, {});
}

std::optional<LaunchEnvironment> launch_environment() {
  return launch_environment([](const char* name) -> const char* { return std::getenv(name); },
                            parent_processes());
}

}  // namespace kindling
