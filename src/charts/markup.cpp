#include "charts/markup.h"

#include <algorithm>

#include "kindling/base/text.h"

namespace kindling {

std::string markup_text(std::string_view text) {
  std::string escaped;
  for (const char c : one_line(text)) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

std::string markup_lines(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    escaped += markup_text(text.substr(0, end));
    if (end < text.size()) escaped += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return escaped;
}

}  // namespace kindling
