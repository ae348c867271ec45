#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <utility>

#include "base/joined.h"
#include "data/sources/image_files.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_places.h"
#include "data/sources/table_rows.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/formats/table.h"

// The files of ImageFolderOptions::list.
namespace kindling {
namespace {

namespace fs = std::filesystem;

std::string text_in(const TableColumn& column, std::size_t row) {
  const std::int32_t code = column.codes[row];
  return code < 0 ? "" : column.categories[static_cast<std::size_t>(code)];
}

// Returns the columns that look like boxes of objects.
std::vector<std::string> box_columns(const Table& table) {
  using Names = std::initializer_list<const char*>;
  for (const Names& names : {Names{"xmin", "ymin", "xmax", "ymax"}, Names{"x_min", "y_min", "x_max", "y_max"},
                             Names{"x1", "y1", "x2", "y2"}, Names{"bbox"}, Names{"bboxes"}, Names{"boxes"},
                             Names{"bounding_box"}}) {
    std::vector<std::string> found;
    for (const char* const name : names)
      for (const TableColumn& column : table.columns)
        if (lower_case(column.name) == name) found.push_back(column.name);
    if (found.size() == names.size()) return found;
  }
  return {};
}

// The rows that name the file of an earlier row.
struct RepeatedFiles {
  std::size_t count = 0, row = 0, earlier = 0;  // the first of them, and the row that has its file
};

RepeatedFiles repeated_files(const std::vector<std::string>& names) {
  std::map<std::string, std::size_t> rows;
  RepeatedFiles repeated;
  for (std::size_t row = 0; row < names.size(); ++row) {
    const auto [found, is_new] = rows.emplace(fs::path(names[row]).lexically_normal().string(), row);
    if (is_new || names[row].empty()) continue;
    if (repeated.count++ == 0) repeated.row = row, repeated.earlier = found->second;
  }
  return repeated;
}

// The label of such a list is that of an object, not of its image.
void check_boxes(const ImageList& list, const Table& table, bool has_repeated) {
  const std::vector<std::string> boxes = box_columns(table);
  if (boxes.empty()) return;
  const bool predicts_box = std::ranges::any_of(boxes, [&](const std::string& name) {
    return name == list.label || std::ranges::find(list.target, name) != list.target.end();
  });
  const std::string found =
      (boxes.size() == 1 ? "the column " : "the columns ") + joined(boxes, ", ", one_line);
  if (predicts_box || has_repeated)
    throw ConfigError({.place = list.file.string(),
                       .found = found + (predicts_box ? " with boxes, which the config predicts"
                                                      : " with boxes, and several rows for a file"),
                       .wanted = "a row per image, with the labels of the whole image",
                       .remedy = "Kindling has no detection"});
  log_warning(
      list.file.string() + ": " + found +
      (boxes.size() == 1 ? " looks like boxes, and is not read" : " look like boxes, and are not read") +
      ": Kindling has no detection");
}

void warn_of_repeated(const ImageList& list, const Table& table, const RepeatedFiles& repeated,
                      const std::string& name) {
  if (repeated.count == 0) return;
  log_warning(list.file.string() + ": " + counted(repeated.count, "row") +
              (repeated.count == 1 ? " names" : " name") + " the file of another row, the first: row " +
              std::to_string(table.row_number(repeated.row)) + ", as row " +
              std::to_string(table.row_number(repeated.earlier)) + ", " + one_line(name) +
              "; a split may validate on files that it trains on, and several labels of a file belong into "
              "one cell (data.label_separator)");
}

// Throws DataError with the number of rows without a file, and the first of them.
void require_files(const ImageList& list, const Table& table, const ImageFiles& files) {
  std::size_t count = 0, first = 0;
  for (std::size_t row = 0; row < files.names.size(); ++row) {
    if (!files.names[row].empty() && fs::exists(files.path(row))) continue;
    if (count++ == 0) first = row;
  }
  if (count == 0) return;
  throw DataError({.place = row_place(table, first, list.image, list.file.string()),
                   .found = (files.names[first].empty() ? "the file is missing"
                                                        : "there is no file " + files.path(first).string()) +
                            (count == 1 ? ""
                                        : " (" + std::to_string(count) + " of " +
                                              std::to_string(files.names.size()) + " rows have none)"),
                   .wanted = "a PNG, JPEG, BMP, WebP or TIFF file",
                   .remedy = "correct the row, or set data.root to the directory of the files"});
}

void take_labels(const ImageList& list, const Table& table, ImageFiles& files) {
  const std::string place = list.file.string();
  const bool has_targets = !list.target.empty();
  const TableSchema schema = schema_of(table,
                                       {.target = list.target,
                                        .label = has_targets ? "" : list.label,
                                        .label_separator = list.label_separator,
                                        .features = {list.image}},
                                       place);
  const at::Tensor labels = labels_of(table,
                                      {.targets = schema.targets,
                                       .label = schema.label,
                                       .classes = schema.classes,
                                       .label_separator = schema.label_separator},
                                      nullptr, place);
  files.classes = schema.classes;
  if (!list.label_separator.empty()) log_rows_without_label(labels, "files", place);
  if (has_targets || !list.label_separator.empty())
    files.targets = labels;
  else
    files.labels.assign(labels.const_data_ptr<std::int64_t>(),
                        labels.const_data_ptr<std::int64_t>() + labels.numel());
}

}  // namespace

ImageFiles files_in_list(const ImageList& list) {
  const std::string place = list.file.string();
  const std::string predicted = list.target.empty() ? list.label : list_names(list.target);
  if (!fs::exists(list.file))
    throw DataError({.place = place,
                     .found = "no such file",
                     .wanted = "the table of data.list, with the columns " + list.image + " and " + predicted,
                     .remedy = "relative paths are relative to the config file's directory"});
  const Table table = read_table(list.file, {.categories = {list.image}});
  const TableColumn& column = require_column(table, list.image, "data.list", place);
  if (list.target.empty()) require_column(table, list.label, "data.list", place);
  if (table.num_rows == 0)
    throw DataError({.place = place, .found = "the list has no rows", .wanted = "at least one"});
  ImageFiles files{.folder = list.folder};
  for (std::size_t row = 0; row < table.num_rows; ++row) files.names.push_back(text_in(column, row));
  const RepeatedFiles repeated = repeated_files(files.names);
  check_boxes(list, table, repeated.count > 0);
  warn_of_repeated(list, table, repeated, files.names[repeated.row]);
  take_labels(list, table, files);
  if (!list.weights.empty()) {
    const at::Tensor all =
        weights_of(table, require_column(table, list.weights, "data.weights", place), place);
    files.weights.assign(all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel());
  }
  if (list.must_exist) require_files(list, table, files);
  return files;
}

}  // namespace kindling
