#include "kindling/loggers/jsonl_logger.h"

#include <string>

#include "kindling/base/json.h"

namespace kindling {

void JsonlLogger::write(const Record& record) {
  const std::string step = "\"global_step\": " + std::to_string(record.global_step);
  const std::string epoch = "\"epoch\": " + std::to_string(record.epoch);
  std::string line = "{" + (record.kind == Record::Kind::step ? step + ", " + epoch : epoch + ", " + step);
  for (const auto& [name, value] : record.values)
    line += ", " + json_string(name) + ": " + json_number(value);
  file_.append(line + "}\n");
}

}  // namespace kindling
