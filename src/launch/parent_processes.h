#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kindling {

// One of the processes that this one descends from.
struct ParentProcess {
  std::vector<std::string> command{};  // its arguments; of a daemon, the title that it chose
  // The environment that it started with; empty if this user may not read it.
  std::optional<std::map<std::string, std::string>> variables{};
};

// The parent comes first.
using ParentProcesses = std::vector<ParentProcess>;

// Returns the processes that this one descends from, as far as the system shows them.
ParentProcesses parent_processes();

// Returns the name of the program without its folder; empty if there is none.
std::string program_name(const ParentProcess& process);

}  // namespace kindling
