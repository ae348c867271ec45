#include "kindling/formats/csv.h"

#include "base/joined.h"

namespace kindling {
namespace {

std::string quoted_if_needed(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string csv_line(std::span<const std::string> fields) {
  return joined(fields, ",", quoted_if_needed) + '\n';
}

std::vector<std::string> take_csv_line(std::string_view& text) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  while (!text.empty()) {
    const char c = text.front();
    text.remove_prefix(1);
    if (is_quoted && c == '"' && text.starts_with('"')) {
      fields.back() += '"';
      text.remove_prefix(1);
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (is_quoted || (c != ',' && c != '\n')) {
      fields.back() += c;
    } else if (c == ',') {
      fields.emplace_back();
    } else {
      break;
    }
  }
  return fields;
}

}  // namespace kindling
