#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/formats/table.h"

namespace kindling {

// All that a reader of tables refuses, in groups of values of a column, or of rows, with the same hint.
class WrongValues {
 public:
  // Forgets the values, before the file is read again without the rows.
  void begin_pass() { groups_.clear(); }
  void add_value(const std::string& column, const ErrorParts& error) { add(groups_, column, error); }
  void add_row(const ErrorParts& error) { add(rows_, "", error); }

  // Returns the first error of each group, with the number of the others; at most five groups per column.
  std::vector<ErrorParts> errors() const;

 private:
  struct Group {
    std::string column{};
    ErrorParts first{};
    std::size_t count = 0;
  };
  static void add(std::vector<Group>& groups, const std::string& column, const ErrorParts& error);

  std::vector<Group> groups_{}, rows_{};
};

// Throws one DataError with all of them. Requires at least one.
[[noreturn]] void throw_all(const std::vector<ErrorParts>& errors);

// Returns all wrong values and rows of a file; none if it cannot be read for another reason.
std::vector<ErrorParts> wrong_values_in(const std::filesystem::path& path, const TableOptions& options);

// Reads a table as read_table() does, and throws one DataError with all wrong values and rows.
KINDLING_API Table read_table_or_list_errors(const std::filesystem::path& path, const TableOptions& options);

// Read without the rows and values that they add to `wrong`.
Table read_table(const std::filesystem::path& path, const TableOptions& options, WrongValues* wrong);
Table parse_table(std::string_view text, const std::string& place, const TableOptions& options,
                  WrongValues* wrong);
Table parse_json_lines(std::string_view text, const std::string& place, const TableOptions& options,
                       WrongValues* wrong);

}  // namespace kindling
