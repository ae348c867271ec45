#pragma once

#include <cstdint>
#include <optional>
#include <string>

// Parsers for SLURM's list syntax.
namespace kindling {

// Returns the first host of "node[003-007,9],other": "node003". Returns nothing for an invalid list.
std::optional<std::string> first_host(const std::string& list);

// Returns the tasks of a node by "4(x2),3", where nodes 0 and 1 have 4 and node 2 has 3. Returns nothing for
// an invalid list and for a node that is not in it.
std::optional<std::int64_t> tasks_of_node(const std::string& list, std::int64_t node);

}  // namespace kindling
