#include "kindling/loggers/csv_logger.h"

#include <algorithm>
#include <utility>

#include "kindling/base/number_text.h"
#include "kindling/formats/csv.h"

namespace kindling {

CsvLogger::CsvLogger(std::filesystem::path path) : path_(std::move(path)) {}

void CsvLogger::write(const Record& record) {
  if (record.kind != Record::Kind::epoch) return;
  const bool wider = add_new_columns(record);
  rows_.push_back(record);
  if (wider || !file_) {
    rewrite();
  } else {
    file_->append(line_of(record));
  }
}

bool CsvLogger::add_new_columns(const Record& record) {
  const std::size_t before = columns_.size();
  for (const auto& [name, value] : record.values) {
    if (std::ranges::find(columns_, name) == columns_.end()) columns_.push_back(name);
  }
  return columns_.size() > before;
}

std::string CsvLogger::line_of(const Record& record) const {
  std::vector<std::string> fields = {std::to_string(record.epoch), std::to_string(record.global_step)};
  for (const std::string& name : columns_) {
    const double* const value = record.find(name);
    fields.push_back(value != nullptr ? number_text(*value) : "");
  }
  return csv_line(fields);
}

void CsvLogger::rewrite() {
  std::vector<std::string> header = {"epoch", "global_step"};
  header.insert(header.end(), columns_.begin(), columns_.end());
  std::string text = csv_line(header);
  for (const Record& row : rows_) text += line_of(row);
  write_file_atomically(path_, text);
  file_.emplace(path_);  // anew: the name now belongs to another file
}

}  // namespace kindling
