#include "kindling/loggers/csv_logger.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/csv.h"
#include "loggers/missing_epochs.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxTableBytes = std::size_t{1} << 40;  // larger than any run's file

// Returns the epoch of a row of so many numbers and empty cells; nothing where it is none.
std::optional<std::int64_t> epoch_of_row(std::string_view row, std::size_t num_columns) {
  std::optional<std::int64_t> epoch;
  std::size_t column = 0;
  for (bool is_last = false; !is_last; ++column) {
    const std::size_t end = std::min(row.find_first_of(",\n"), row.size());
    const std::string_view cell = row.substr(0, end);
    is_last = end == row.size() || row[end] == '\n';
    row.remove_prefix(std::min(end + 1, row.size()));
    double number = 0;
    const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
    const bool is_number = error == std::errc() && stop == cell.data() + cell.size();
    if (column < 2 ? !is_number : !is_number && !cell.empty()) return std::nullopt;
    if (column == 0) epoch = static_cast<std::int64_t>(number);
  }
  return column == num_columns ? epoch : std::nullopt;
}

// The rows up to an epoch, without those that cannot be read.
struct KeptRows {
  std::string text{};
  std::size_t num_damaged = 0;
  MissingEpochs missing;

  KeptRows(std::string_view rows, std::size_t num_columns, std::int64_t last_epoch) : missing(last_epoch) {
    while (!rows.empty()) {
      const std::string_view row = rows.substr(0, std::min(rows.find('\n'), rows.size() - 1) + 1);
      rows.remove_prefix(row.size());
      const std::optional<std::int64_t> epoch = epoch_of_row(row, num_columns);
      if (epoch && *epoch > last_epoch) break;
      if (epoch) {
        text += row;
        missing.found(*epoch);
      } else {
        ++num_damaged;
      }
    }
  }
};

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
    if (file_) file_->sync();  // writes it again where somebody has removed it
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
  if (!std::filesystem::exists(path_)) return report_damage(path_, 0, MissingEpochs(at.epoch));
  AppendFile file(path_);  // removes an incomplete line of a killed process
  const std::string table = read_file(path_, kMaxTableBytes);
  std::string_view rows = table;
  const std::vector<std::string> names = take_csv_line(rows);
  if (names.size() < 2 || names[0] != "epoch" || names[1] != "global_step")
    return report_damage(path_, 0, MissingEpochs(at.epoch));
  columns_.assign(names.begin() + 2, names.end());
  const KeptRows kept(rows, names.size(), at.epoch);
  if (kept.num_damaged == 0) {
    file.cut_to(table.size() - rows.size() + kept.text.size());
    file_ = std::move(file);
  } else {
    write_file_atomically(path_, table.substr(0, table.size() - rows.size()) + kept.text);
    file_.emplace(path_);
  }
  report_damage(path_, kept.num_damaged, kept.missing);
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
