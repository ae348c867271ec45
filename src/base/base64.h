#pragma once

#include <string>
#include <string_view>

namespace kindling {

// Returns bytes in base64 (RFC 4648) with padding, on one line.
std::string base64_text(std::string_view bytes);

}  // namespace kindling
