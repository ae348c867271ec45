#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// Tables from CSV files and from files of JSON lines (.jsonl, .ndjson).
//
// A CSV file (RFC 4180) has a header row with the columns' names, then rows of as many fields:
// - The first column without a name, or the only one, is called `row`: R and pandas write row numbers so. Its
//   values are categories. Other columns without a name are omitted.
// - Fields may be quoted, and then contain delimiters, line breaks and doubled quotes. Spaces and tabs around
//   unquoted fields are ignored. Lines end with LF, CRLF or CR. Blank lines and a UTF-8 byte order mark are
//   skipped.
// - A missing value is an empty field or one of NA, N/A, NaN, nan, NULL and null. In a column of categories,
//   quoted text is never missing: "" and "NA" are categories. In one that TableOptions::categories declares,
//   an empty field is a category, too.
// - Numbers have a decimal point, in every locale, and are read exactly. They must be finite.
//
// A file of JSON lines has an object per line, such as {"rooms": 3, "city": "Bern"}; a .json file may also be
// an array of such objects:
// - Its keys are the columns, in the order in which they first occur.
// - null, or a key that the line lacks, is a missing value. A text is never missing.
// - Texts are categories, also if they look like numbers; so are true and false. A number in a column of
//   categories is the text that the file has.
// - Arrays and objects as values are refused, as is a key that occurs twice. Blank lines are skipped.
namespace kindling {

// The kind of the values of a column.
enum class ColumnKind : std::uint8_t { number, category };

// One column: its numbers or its categories.
struct TableColumn {
  std::string name{};
  ColumnKind kind = ColumnKind::number;
  std::vector<double> numbers{};          // one per row in a column of numbers; NaN: missing
  std::vector<std::int32_t> codes{};      // one per row in a column of categories, indices; -1: missing
  std::vector<std::string> categories{};  // the distinct texts, sorted bytewise

  // `row`: of the table, counted from 0.
  bool is_missing(std::size_t row) const {
    return kind == ColumnKind::number ? numbers[row] != numbers[row] : codes[row] < 0;
  }
};

// A row that is not in the table.
struct BrokenRow {
  std::size_t row = 0;  // in the file, counted from 1, without the header
  std::string error{};  // with file, row, line and column
};

// The columns of a file, in its order.
struct Table {
  std::vector<TableColumn> columns{};
  std::size_t num_rows = 0;          // without the header
  std::vector<BrokenRow> skipped{};  // with TableOptions::skips_broken
  // The name that the column without a name got: row numbers, as R and pandas write them. Empty: none.
  std::string row_name{};
  // Names of a CSV file's columns that are numbers, as if the header were a row of values.
  std::size_t num_number_names = 0;
  std::size_t num_unnamed = 0;  // further columns without a name, which are not in the table

  // Returns the number in the file, counted from 1, of a row of the table, counted from 0.
  KINDLING_API std::size_t row_number(std::size_t index) const;
  // Returns nullptr where no column has this name.
  KINDLING_API const TableColumn* find(std::string_view name) const;
};

struct TableOptions {
  // Columns whose kind is declared. The kind of another one is found: a column whose values are all numbers
  // is one of numbers. If only some of them are, it is one of categories, unless they are at least half: then
  // the first other value is an error, because it is probably a mistake.
  std::vector<std::string> numbers{};
  std::vector<std::string> categories{};
  // Columns of categories whose kind an earlier table has shown: as those declared, but an empty field is
  // missing.
  std::vector<std::string> known_categories{};
  // Reads the columns in these three lists, as far as the file has them, and skips all others.
  bool skips_others = false;
  // Skips rows that cannot be read: with too few or too many fields, wrong quotes, wrong JSON, text that is
  // not UTF-8, or another value in a column of numbers. A column whose kind is not declared has numbers if at
  // least half of its values are numbers.
  bool skips_broken = false;
  // Of CSV. 0: the first line decides among ',', ';', '\t', '|' and ' ' (one or several blanks).
  char delimiter = ',';
  bool has_header = true;             // of CSV; false: the columns are c1, c2, …
  std::size_t num_skipped_lines = 0;  // of CSV, before the header
  char comment = 0;                   // of CSV: lines that begin with it are skipped; 0: none
  char thousands = 0;  // of CSV: ',' '.' ' ' '\'' or '_' between groups of three digits; 0: none
  char decimal = '.';  // of CSV: '.' or ','
  // More texts that mark a missing value; "auto": those that programs usually write, such as ?, -, None,
  // nil.
  std::vector<std::string> na_values{};
  // The same for single columns, in addition.
  std::map<std::string, std::vector<std::string>> na_values_of{};
  // Names in the file → names in the table.
  std::map<std::string, std::string> renamed{};
  std::size_t max_bytes = std::size_t{1} << 32;  // of the file
};

// All throw DataError with file, row (counted from 1, without the header), line and column. They need memory
// for the file, for a double or an int32 per value (while columns grow, twice as much), and for the distinct
// categories. More than 65,536 columns, or 10 million categories of one, are refused; and JSON lines of which
// almost all values are missing, more than 4 million of them and more than 4 per byte of the file.
// Reads JSON lines if is_json_lines_file(path), otherwise CSV; both also compressed by gzip.
KINDLING_API Table read_table(const std::filesystem::path& path, const TableOptions& options = {});
KINDLING_API Table parse_table(std::string_view text, const std::string& place,
                               const TableOptions& options = {});
// TableOptions::delimiter has no effect.
KINDLING_API Table parse_json_lines(std::string_view text, const std::string& place,
                                    const TableOptions& options = {});

// Returns true for the extensions .jsonl, .ndjson and .json, in upper or lower case, also before .gz.
KINDLING_API bool is_json_lines_file(const std::filesystem::path& path);

}  // namespace kindling
