#include "kindling/base/json.h"

#include <cmath>

#include "kindling/base/number_text.h"

namespace kindling {

std::string json_number(double value) { return std::isfinite(value) ? number_text(value) : "null"; }

std::string json_string(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted;
  quoted.reserve(text.size() + 2);
  quoted += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace kindling
