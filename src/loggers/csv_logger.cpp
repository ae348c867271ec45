#include "kindling/loggers/csv_logger.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/csv.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxTableBytes = std::size_t{1} << 40;  // larger than any run's file

}  // namespace

CsvLogger::CsvLogger(std::filesystem::path path) : path_(std::move(path)) {}

void CsvLogger::write(const Record& record) {
  if (record.kind != Record::Kind::epoch) return;
  const std::string old_header = header();
  const std::size_t old_size = columns_.size();
  for (const auto& [name, value] : record.values) {
    if (std::ranges::find(columns_, name) == columns_.end()) columns_.push_back(name);
  }
  if (!file_ || columns_.size() > old_size) {
    write_file_atomically(path_, file_ ? widened(old_header, columns_.size() - old_size) : header());
    file_.emplace(path_);  // reopened: the name now belongs to another file
  }
  file_->append(line_of(record));
  is_synced_ = false;
}

void CsvLogger::sync() {
  if (!is_synced_) file_->sync();
  is_synced_ = true;
}

void CsvLogger::resume_at(const Progress& at) {
  file_.reset();
  columns_.clear();
  if (!std::filesystem::exists(path_)) return;
  AppendFile file(path_);  // removes an incomplete line of a killed process
  const std::string table = read_file(path_, kMaxTableBytes);
  std::string_view rest = table;
  std::vector<std::string> names = take_csv_line(rest);
  if (names.size() < 2 || names[0] != "epoch" || names[1] != "global_step") return;
  columns_.assign(names.begin() + 2, names.end());
  std::string_view row = rest;
  while (!row.empty() && std::atoll(take_csv_line(rest)[0].c_str()) <= at.epoch) row = rest;
  file.cut_to(table.size() - row.size());
  file_ = std::move(file);
}

std::string CsvLogger::header() const {
  std::vector<std::string> fields = {"epoch", "global_step"};
  fields.insert(fields.end(), columns_.begin(), columns_.end());
  return csv_line(fields);
}

std::string CsvLogger::line_of(const Record& record) const {
  std::vector<std::string> fields = {std::to_string(record.epoch), std::to_string(record.global_step)};
  for (const std::string& name : columns_) {
    const double* const value = record.find(name);
    fields.push_back(value != nullptr ? number_text(*value) : "");
  }
  return csv_line(fields);
}

// Returns the file's table under a new header. Rows contain only numbers, so each line is one row.
std::string CsvLogger::widened(const std::string& old_header, std::size_t num_new) const {
  const std::string table = read_file(path_, kMaxTableBytes);
  if (!table.starts_with(old_header)) {
    throw Error({.place = path_.string(),
                 .found = "another program has changed the file",
                 .wanted = "the table as this run wrote it",
                 .remedy = "edit a copy while the run is active"});
  }
  std::string text = header();
  for (const char c : std::string_view(table).substr(old_header.size())) {
    if (c == '\n') text.append(num_new, ',');
    text += c;
  }
  return text;
}

}  // namespace kindling
