#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kindling {

// Describes where the program runs, one line each: versions, libraries, the CPU, memory and GPUs.
std::vector<std::pair<std::string, std::string>> environment_facts();

}  // namespace kindling
