#pragma once

#include <cstddef>
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
};

// The columns that a model was trained on, and their meaning. Stored as JSON in the metadata
// `input_transform` of checkpoints and weights files.
struct KINDLING_API TableSchema {
  std::vector<TableFeature> features{};  // in the order of the model's raw inputs
  std::vector<std::string> targets{};    // columns of numbers to predict
  std::string label{};                   // the column of classes; empty: none
  std::vector<std::string> classes{};    // class i is classes[i]
  std::string id{};                      // the column that identifies rows; empty: none

  // Returns the JSON text: {"version":1,"features":[{"name":"rooms","kind":"number"},
  // {"name":"city","kind":"category","categories":["Bern","Bonn"]}],"targets":["price"]}.
  std::string text() const;
  // Throws CheckpointError, which names the location in the text, for a text of another form.
  static TableSchema parse(const std::string& text, const std::string& place);

  // Returns the number of columns after one-hot encoding: one per number and per category.
  std::size_t num_encoded() const;
  // Returns the options that read another table in the same way: only the columns of the schema, each of its
  // kind.
  TableOptions table_options() const;
};

}  // namespace kindling
