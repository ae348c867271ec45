#pragma once

#include <string>
#include <vector>

namespace kindling {

// Packs several texts, of any bytes, into one message.
std::string packed(const std::vector<std::string>& texts);
// Throws DistributedError for bytes that packed() does not produce.
std::vector<std::string> unpacked(const std::string& bytes);

}  // namespace kindling
