#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/sources/table_rows.h"
#include "kindling/data/table_data_options.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

enum class TableColumns : std::uint8_t { of_inputs, with_labels, of_training };

// Reads the files of TableData. Errors in values of several files are in one message.
class TableReader {
 public:
  // `options` must outlive the reader. A column without a name becomes `id` or part of `exclude` there.
  explicit TableReader(TableDataOptions& options) : options_(options) {}

  // Has a table in memory take the place of a file.
  void keep(const std::filesystem::path& file, Table table) { tables_[file] = std::move(table); }
  bool has_kept(const std::filesystem::path& file) const { return tables_.contains(file); }
  // Reads the training file without a schema.
  Table read_first();
  // Reads a file by the schema.
  Table read_again(const std::filesystem::path& file, const TableSchema& schema, TableColumns columns);
  // Stores the units of the columns that the schema has, after read_first().
  void add_units(TableSchema& schema) const;

  const std::vector<std::string>& skipped() const { return skipped_; }  // an error per row

 private:
  TableOptions reading(const TableOptions& columns, const std::string& id, const std::string& label) const;
  Table read(const std::filesystem::path& file, const TableOptions& read) const;
  Table names_only() const;
  Table without_broken(Table table, const std::filesystem::path& file);
  bool skips() const { return options_.on_broken == "skip"; }
  // True if an empty cell of the label is a row without any of several labels.
  bool may_lack_labels() const {
    return !options_.label_separator.empty() && options_.on_missing_target == "skip";
  }
  void refuse_row_without_label(const Table& table, const std::string& place) const;
  bool is_declared(const std::string& name) const;
  void take_row_name(const Table& table);
  void find_units(const Table& table);
  void warn_of_texts(const std::string& name, const std::vector<std::string>& without_unit) const;
  void find_wrong_times(const Table& table, const std::string& place, WrongRows& wrong) const;
  void require_columns(const Table& table) const;

  TableDataOptions& options_;
  std::map<std::string, NumberUnit> units_{};
  std::map<std::filesystem::path, Table> tables_{};  // in memory
  std::vector<std::string> skipped_{};
};

}  // namespace kindling
