#pragma once

#include <string>
#include <string_view>

namespace kindling {

// Returns untrusted text that is safe in the text and in quoted attributes of HTML and SVG: one line, with
// entities for & < > ".
std::string markup_text(std::string_view text);
// The same for text of several lines.
std::string markup_lines(std::string_view text);

}  // namespace kindling
