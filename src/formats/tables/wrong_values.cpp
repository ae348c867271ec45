#include "formats/tables/wrong_values.h"

#include <algorithm>
#include <map>

#include "base/joined.h"
#include "kindling/base/text.h"

namespace kindling {

void WrongValues::add(std::vector<Group>& groups, const std::string& column, const ErrorParts& error) {
  constexpr std::size_t kMostGroups = 1000;  // of a column in which all texts differ
  const auto found = std::ranges::find_if(groups, [&](const Group& group) {
    return group.column == column && group.first.remedy == error.remedy && group.first.wanted == error.wanted;
  });
  if (found != groups.end())
    ++found->count;
  else if (groups.size() < kMostGroups)
    groups.push_back({.column = column, .first = error, .count = 1});
}

std::vector<ErrorParts> WrongValues::errors() const {
  constexpr std::size_t kShown = 5;
  std::vector<ErrorParts> errors;
  std::map<std::string, std::size_t> num_groups;
  const auto add_groups = [&](const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      if (++num_groups[group.column] > kShown) continue;
      ErrorParts error = group.first;
      if (group.count > 1) error.found += ", and " + counted(group.count - 1, "similar one");
      errors.push_back(error);
    }
  };
  add_groups(rows_);
  num_groups.clear();
  add_groups(groups_);
  for (const auto& [column, count] : num_groups)
    if (count > kShown)
      errors.push_back({.place = "column '" + one_line(column) + "'",
                        .found = counted(count - kShown, "more text") + " that are not numbers",
                        .remedy = "list the column in data.categories if its values are names"});
  return errors;
}

void throw_all(const std::vector<ErrorParts>& errors) {
  if (errors.size() == 1) throw DataError(errors.front());
  throw DataError({.found = joined(errors, "\n", [](const ErrorParts& parts) {
                     return std::string(DataError(parts).what());
                   })});
}

std::vector<ErrorParts> wrong_values_in(const std::filesystem::path& path, const TableOptions& options) {
  WrongValues wrong;
  try {
    TableOptions skipping = options;
    skipping.skips_broken = true;
    read_table(path, skipping, &wrong);
  } catch (const DataError&) {  // not only values and rows are wrong
    return {};
  }
  return wrong.errors();
}

Table read_table_or_list_errors(const std::filesystem::path& path, const TableOptions& options) {
  try {
    return read_table(path, options);
  } catch (const DataError&) {
    if (options.skips_broken) throw;
    const std::vector<ErrorParts> errors = wrong_values_in(path, options);
    if (errors.size() < 2) throw;
    throw_all(errors);
  }
}

}  // namespace kindling
