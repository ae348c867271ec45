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

}  // namespace kindling
