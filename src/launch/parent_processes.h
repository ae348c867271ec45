#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// One of the processes that this one descends from.
struct ParentProcess {
  std::vector<std::string> command{};  // its arguments; of a daemon, the title that it chose
  // The environment that it started with; empty if this user may not read it.
  std::optional<std::map<std::string, std::string>> variables{};
  std::int64_t id = 0;
};

// The parent comes first.
using ParentProcesses = std::vector<ParentProcess>;

// Returns the processes that this one descends from, as far as the system shows them.
ParentProcesses parent_processes();

// Returns the id of the closest parent that does not have the variable of this process with its value: that
// of the launcher that has set it. Returns 0 if this process does not have the variable or all parents have
// it.
KINDLING_API std::int64_t process_that_set(const std::string& variable, const ParentProcesses& parents);
KINDLING_API std::int64_t process_that_set(const std::string& variable);

// Returns the name of the program without its folder; empty if there is none.
std::string program_name(const ParentProcess& process);

}  // namespace kindling
