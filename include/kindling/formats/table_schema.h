#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/table.h"

namespace kindling {

// A column that a model reads.
struct TableFeature {
  std::string name{};
  ColumnKind kind = ColumnKind::number;
  std::vector<std::string> categories{};  // of the training rows, sorted bytewise; code i is categories[i]
  bool is_declared = false;               // an empty field is a category (TableOptions::categories)
  // Subtracted from the numbers in float64 before anything rounds them. Set for a column that float32 would
  // round by more than 1e-3 of its standard deviation, such as Unix time.
  std::optional<double> offset{};
};

// What files write around the numbers of a column: "$" before or "kg" after them, without spaces.
struct NumberUnit {
  std::string prefix{}, suffix{};
  bool has_groups = false;  // a comma separates thousands, as in $5,377.19
};

// What a column of dates becomes: `sold.year` and others of `sold`.
inline constexpr std::array kDateParts{"year", "month", "weekday", "hour", "seconds"};

// The columns that a model was trained on, and their meaning. Stored as JSON in the metadata
// `input_transform` of checkpoints and weights files.
struct KINDLING_API TableSchema {
  std::vector<TableFeature> features{};       // in the order of the model's raw inputs
  std::vector<std::string> targets{};         // columns of numbers to predict
  std::string label{};                        // the column of classes; empty: none
  std::vector<std::string> classes{};         // class i is classes[i]
  std::string label_separator{};              // of several labels in one cell; empty: a cell is a label
  std::string id{};                           // the column that identifies rows; empty: none
  std::vector<std::string> dates{};           // columns that features are computed from, see kDateParts
  std::map<std::string, NumberUnit> units{};  // of columns of numbers, by name
  // Samples are windows of consecutive rows of a series, in the order of the file or of `time`; 0: a sample
  // is a row. See TableDataOptions.
  std::int64_t window = 0, horizon = 1;
  std::string series{}, time{};
  // Numbers are scaled in float64; false in descriptions of version 1, whose models were trained on numbers
  // that were rounded to float32 first.
  bool scales_in_double = true;
  // Columns of categories in which each boolean or integer has one text: true for True, 3 for 3.0. The whole
  // training file decides, so that every other file is read alike. Empty in descriptions of versions 1 and 2.
  std::vector<std::string> booleans{}, integers{};
  bool unifies_values = true;  // false in descriptions of versions 1 and 2

  // Returns the JSON text: {"version":3,"features":[{"name":"rooms","kind":"number"},
  // {"name":"time","kind":"number","offset":1700000300},
  // {"name":"city","kind":"category","categories":["Bern","Bonn"]}],"targets":["price"]}.
  std::string text() const;
  // Throws CheckpointError, which names the location in the text, for a text of another form.
  static TableSchema parse(const std::string& text, const std::string& place);

  // Returns the number of columns after one-hot encoding: one per number and per category.
  std::size_t num_encoded() const;
  // True if a column has an offset: rows that are float32 lack digits.
  bool has_offsets() const;
  // Returns the options that read another table in the same way: only the columns of the schema, each of its
  // kind.
  TableOptions table_options() const;
};

}  // namespace kindling
