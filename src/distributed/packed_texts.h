#pragma once

#include <string>
#include <vector>

namespace kindling {

// Several texts, of any bytes, as one that travels between processes.
std::string packed(const std::vector<std::string>& texts);
// Throws DistributedError for what packed() does not give.
std::vector<std::string> unpacked(const std::string& bytes);

}  // namespace kindling
