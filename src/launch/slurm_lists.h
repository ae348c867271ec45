#pragma once

#include <cstdint>
#include <optional>
#include <string>

// How SLURM writes lists.
namespace kindling {

// The first host of "node[003-007,9],other": "node003". Nothing for what is no such list.
std::optional<std::string> first_host(const std::string& list);

// The tasks of a node by "4(x2),3", of which nodes 0 and 1 have 4 and node 2 has 3. Nothing for what is no
// such list or has no such node.
std::optional<std::int64_t> tasks_of_node(const std::string& list, std::int64_t node);

}  // namespace kindling
