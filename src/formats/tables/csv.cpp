#include "kindling/formats/csv.h"

#include "base/joined.h"

namespace kindling {

std::string csv_field(const std::string& field) {
  const bool is_plain =
      field.find_first_of(",\"\r\n") == std::string::npos && !field.starts_with(' ') && !field.ends_with(' ');
  if (is_plain) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_line(std::span<const std::string> fields) { return joined(fields, ",", csv_field) + '\n'; }

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
