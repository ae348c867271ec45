#include "data/sources/table_checks.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

bool lists(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The other columns of a file of predictions have these names.
void check_id(const std::string& id, bool has_several_labels) {
  for (const char* name : {"sample", "class", "classes", "outputs", "probabilities"})
    if (id == name && (id != "classes" || has_several_labels))
      throw ConfigError({.place = "data.id",
                         .found = "predictions have another column '" + id + "'",
                         .wanted = "a column with another name",
                         .remedy = "rename it in the file"});
}

// Such columns have one use only, but `time` orders rows.
void check_dates(const TableDataOptions& options) {
  for (const std::string& name : options.dates)
    if (name == options.label || name == options.id || name == options.group || name == options.weights ||
        lists(options.target, name) || lists(options.exclude, name) || lists(options.numbers, name) ||
        lists(options.categories, name) || std::ranges::count(options.dates, name) > 1)
      throw ConfigError({.place = "data.dates",
                         .found = "another key, or this one twice, names '" + one_line(name) + "'",
                         .wanted = "a column that only data.features or data.time name as well"});
}

void check_time_split(const TableDataOptions& options) {
  const auto refuse = [](const char* place, const char* found, const char* wanted) {
    throw ConfigError({.place = place, .found = found, .wanted = wanted});
  };
  if (options.split != "time") {
    if (!options.time.empty() && !options.window)
      throw ConfigError({.place = "data.time",
                         .found = "the rows are not split by time",
                         .wanted = "split = \"time\" or window as well"});
    return;
  }
  if (options.time.empty())
    refuse("data.split", "data.time is not set", "the column of the times, such as time = \"date\"");
  if (!options.val_fraction)
    refuse("data.split", "data.val_fraction is not set", "the fraction of the last rows, such as 0.2");
  if (options.stratify || !options.group.empty())
    refuse(options.stratify ? "data.stratify" : "data.group", "data.split is \"time\"", "one of them");
}

void check_windows(const TableDataOptions& options) {
  const auto refuse = [](const char* place, const char* found, const char* wanted, const char* remedy) {
    throw ConfigError({.place = place, .found = found, .wanted = wanted, .remedy = remedy});
  };
  if (!options.window) {
    if (options.horizon != 1 || !options.series.empty())
      refuse(options.series.empty() ? "data.horizon" : "data.series", "data.window is not set",
             "the number of rows of a window", "for example window = 16");
    return;
  }
  if (options.on_broken == "skip")
    refuse("data.on_broken", "it is \"skip\", and data.window is set", "\"stop\"",
           "a window has consecutive rows; list marks of missing values in data.na_values instead");
}

// A sample of several labels is in several classes.
void check_separator(const TableDataOptions& options, const DataOptions& shared) {
  if (options.label_separator.empty()) return;
  const auto refuse = [](const char* place, const char* found, const char* wanted) {
    throw ConfigError({.place = place, .found = found, .wanted = wanted});
  };
  if (options.label.empty())
    refuse("data.label_separator", "data.label is not set", "the column of the labels");
  if (options.window)
    refuse("data.label_separator", "data.window is set, too", "rows as samples, or one label per window");
  if (shared.sampler == "balanced")
    refuse("data.sampler", "it is \"balanced\", and a row has several labels",
           "data.weights, a column by which rows are drawn");
}

void check_rename(const TableDataOptions& options) {
  std::set<std::string> names;
  for (const auto& [old, name] : options.rename)
    if (name.empty() || !names.insert(name).second)
      throw ConfigError(
          {.place = "data.rename",
           .found = name.empty() ? "an empty name" : "two columns become '" + one_line(name) + "'",
           .wanted = "distinct names"});
  // Other files may have the new names already.
  for (const std::string& name : names)
    if (options.rename.contains(name))
      throw ConfigError({.place = "data.rename",
                         .found = "the new name '" + one_line(name) + "' is also an old one",
                         .wanted = "new names that are not renamed"});
}

}  // namespace

void check_table_options(const TableDataOptions& options, const DataOptions& shared) {
  validate(options, "data");
  const auto refuse = [](const char* place, const char* found, const char* wanted, const char* remedy = "") {
    throw ConfigError({.place = place, .found = found, .wanted = wanted, .remedy = remedy});
  };
  if (options.target.empty() && options.label.empty())
    refuse("data", "neither target nor label is set", "the column to predict",
           "for example target = \"price\"");
  if (!options.target.empty() && !options.label.empty())
    refuse("data", "both target and label are set", "target for numbers, or label for classes");
  if (std::set<std::string>(options.target.begin(), options.target.end()).size() < options.target.size())
    refuse("data.target", "a column is listed twice", "distinct columns");
  if (options.val_fraction && options.folds)
    refuse("data", "both val_fraction and folds are set", "one of them");
  const bool is_split = options.val_fraction || options.folds;
  if (is_split && (shared.train || shared.val))
    refuse("data", "val_fraction or folds, and a range of rows in train or val", "one way to split the rows");
  if (options.fold != 0 && !options.folds)
    refuse("data.fold", "folds is not set", "folds = N, with fold < N");
  if (!is_split && (options.stratify || !options.group.empty()))
    refuse(options.stratify ? "data.stratify" : "data.group", "the rows are not split",
           "val_fraction or folds", "for example val_fraction = 0.2");
  check_time_split(options);
  check_windows(options);
  check_separator(options, shared);
  check_rename(options);
  check_dates(options);
  if (options.stratify && options.label.empty())
    refuse("data.stratify", "there is no label", "a column of classes, data.label");
  if (!options.weights.empty() && shared.sampler)
    refuse("data.weights", "data.sampler is set, too", "one of them", "weights draw the rows by themselves");
  std::set<std::string> stems;
  for (const std::filesystem::path& file : options.val_files)
    if (const std::string stem = file.stem().string(); !stems.insert(stem).second)
      throw ConfigError({.place = "data.val_files",
                         .found = "two files are named '" + stem + "'",
                         .wanted = "distinct names, which the records have"});
  check_id(options.id, !options.label_separator.empty());
  const auto require_one_of = [](const char* key, const std::string& value,
                                 const std::vector<std::string>& known, const char* wanted) {
    if (!lists(known, value))
      throw ConfigError({.place = std::string("data.") + key,
                         .found = "\"" + shortened(one_line(value), 40) + "\"",
                         .wanted = wanted});
  };
  require_one_of("delimiter", options.delimiter, {"auto", ",", ";", "\t", "|", " "},
                 "a comma, semicolon, tab, |, blank, or auto");
  require_one_of("decimal", options.decimal, {".", ","}, "a point or a comma");
  require_one_of("thousands", options.thousands, {"", ",", ".", " ", "'", "_"},
                 "a comma, a point, a blank, ' or _");
  if (options.thousands == options.decimal)
    refuse("data.thousands", "data.decimal is the same character", "different characters");
  if (options.comment.size() > 1)
    refuse("data.comment", "more than one character", "one character, such as #");
  for (const std::string& name : options.exclude)
    if (lists(options.features, name))
      throw ConfigError({.place = "data.exclude",
                         .found = "'" + name + "' is also in data.features",
                         .wanted = "one of them"});
}

void require_same_separator(const TableDataOptions& options, const TableSchema& schema) {
  const std::string &now = options.label_separator, &saved = schema.label_separator;
  if (options.label.empty() || schema.label.empty() || now == saved) return;
  const auto text = [](const std::string& separator) {
    return separator.empty() ? std::string("not set") : "\"" + one_line(separator) + "\"";
  };
  throw ConfigError({.place = "data.label_separator",
                     .found = "it is " + text(now),
                     .wanted = text(saved) + ", as in the run",
                     .remedy = "train another run to change it"});
}

void require_same_windows(const TableDataOptions& options, const TableSchema& schema) {
  if (!options.window || schema.window == 0) return;
  const auto require = [](const char* key, const std::string& found, const std::string& saved) {
    if (found == saved) return;
    throw ConfigError({.place = std::string("data.") + key,
                       .found = found.empty() ? "it is not set" : "it is " + found,
                       .wanted = saved.empty() ? "nothing, as in the run" : saved + ", as in the run",
                       .remedy = "train another run to change it"});
  };
  require("window", std::to_string(*options.window), std::to_string(schema.window));
  require("horizon", std::to_string(options.horizon), std::to_string(schema.horizon));
  require("series", options.series, schema.series);
  require("time", options.time, schema.time);
}

}  // namespace kindling
