#include "cli/data/data_check.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/config/exit_codes.h"
#include "cli/data/data_report.h"
#include "data/loading/validation_sets.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "kindling/data/table_data.h"
#include "kindling/formats/table_schema.h"

namespace kindling {
namespace {

using nlohmann::ordered_json;

// The loaders with different sets; a test set that is the validation set is not listed again.
std::vector<NamedLoader> loaders_of(DataModule& data) {
  std::vector<NamedLoader> loaders;
  const auto add = [&](const std::string& name, std::shared_ptr<DataLoader> loader) {
    const bool is_new = loader && std::ranges::none_of(loaders, [&](const NamedLoader& known) {
                          return &known.loader->dataset() == &loader->dataset();
                        });
    if (is_new) loaders.push_back({name, std::move(loader)});
  };
  add("train", data.train_dataloader());
  for (ValidationSet& set : validation_sets_of(data)) add("val" + set.suffix, std::move(set.loader));
  add("test", data.test_dataloader());
  return loaders;
}

std::string shape_of(const TensorReport& tensor) {
  std::string text = "[";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + (tensor.shape[i] < 0 ? "varies" : std::to_string(tensor.shape[i]));
  return text + "]";
}

// PyTorch's names.
std::string dtype_of(const TensorReport& tensor) {
  return std::string(c10::getDtypeNames(tensor.dtype).first);
}

std::string value_text(double value) { return std::isnan(value) ? "" : short_text(value, 5); }

void print_tensors(const std::vector<SetReport>& sets) {
  std::vector<std::vector<std::string>> rows;
  for (const SetReport& set : sets)
    for (std::size_t i = 0; i < set.tensors.size(); ++i) {
      const TensorReport& tensor = set.tensors[i];
      const bool is_first = i == 0;
      rows.push_back({is_first ? set.name : "", is_first ? std::to_string(set.num_samples) : "",
                      is_first ? std::to_string(set.num_batches) : "", std::to_string(i), dtype_of(tensor),
                      shape_of(tensor), value_text(tensor.min), value_text(tensor.max),
                      value_text(tensor.mean), std::to_string(tensor.num_missing)});
    }
  std::cout << table_text({{.title = "set"},
                           {.title = "samples", .right = true},
                           {.title = "batches", .right = true},
                           {.title = "tensor", .right = true},
                           {.title = "dtype"},
                           {.title = "shape"},
                           {.title = "min", .right = true},
                           {.title = "max", .right = true},
                           {.title = "mean", .right = true},
                           {.title = "missing", .right = true}},
                          rows);
}

std::string share_text(std::int64_t count, std::int64_t all) {
  if (count == 0) return "0";
  return std::to_string(count) + " (" +
         fixed_text(100 * static_cast<double>(count) / static_cast<double>(all), 1) + "%)";
}

// The features of a table, by their names. Codes of categories are not numbers: their range says nothing.
void print_columns(const std::vector<SetReport>& sets, const TableSchema& schema) {
  std::vector<std::vector<std::string>> rows;
  for (const SetReport& set : sets)
    for (std::size_t i = 0; i < set.columns.size() && i < schema.features.size(); ++i) {
      const TableFeature& feature = schema.features[i];
      const TensorReport& column = set.columns[i];
      const bool is_number = feature.kind == ColumnKind::number;
      rows.push_back({i == 0 ? set.name : "", one_line(feature.name),
                      is_number ? "number" : std::to_string(feature.categories.size()) + " categories",
                      is_number ? value_text(column.min) : "", is_number ? value_text(column.max) : "",
                      is_number ? value_text(column.mean) : "", std::to_string(column.num_missing)});
    }
  std::cout << "\n"
            << table_text({{.title = "set"},
                           {.title = "column"},
                           {.title = "kind"},
                           {.title = "min", .right = true},
                           {.title = "max", .right = true},
                           {.title = "mean", .right = true},
                           {.title = "missing", .right = true}},
                          rows);
}

void print_classes(const std::vector<SetReport>& sets, const std::vector<std::string>& names) {
  std::size_t num_classes = 0;
  for (const SetReport& set : sets) num_classes = std::max(num_classes, set.classes.size());
  if (num_classes == 0) return;
  std::vector<TextColumn> columns{{.title = "class"}};
  for (const SetReport& set : sets) columns.push_back({.title = set.name, .right = true});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < num_classes; ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(i < names.size() ? one_line(names[i]) : std::to_string(i));
    for (const SetReport& set : sets)
      row.push_back(
          i < set.classes.size()
              ? share_text(set.classes[i], std::max<std::int64_t>(set.num_samples - set.num_broken, 1))
              : "0");
  }
  std::cout << "\n" << table_text(std::move(columns), rows);
}

// What a user would want to know before training.
std::vector<std::string> notes_of(const std::vector<SetReport>& sets, const std::vector<std::string>& names) {
  std::vector<std::string> notes;
  const auto name = [&](std::size_t i) {
    return i < names.size() ? "'" + one_line(names[i]) + "'" : std::to_string(i);
  };
  for (const SetReport& set : sets) {
    for (std::size_t i = 0; i < set.tensors.size(); ++i) {
      const std::string where = set.name + ", tensor " + std::to_string(i) + ": ";
      if (set.tensors[i].num_infinite > 0)
        notes.push_back(where + std::to_string(set.tensors[i].num_infinite) + " infinite values");
      if (set.tensors[i].min == set.tensors[i].max && set.num_samples > 1)
        notes.push_back(where + "all values are " + number_text(set.tensors[i].min));
    }
    const std::vector<std::int64_t>& trained = sets.front().classes;
    for (std::size_t i = 0; i < set.classes.size(); ++i)
      if (set.classes[i] > 0 && (i >= trained.size() || trained[i] == 0))
        notes.push_back("class " + name(i) + " is in " + set.name + ", but not in " + sets.front().name);
  }
  return notes;
}

ordered_json json_of(const SetReport& set) {
  ordered_json json{{"set", set.name}, {"num_samples", set.num_samples}, {"num_batches", set.num_batches}};
  for (const TensorReport& tensor : set.tensors)
    json["tensors"].push_back({{"dtype", dtype_of(tensor)},
                               {"shape", tensor.shape},
                               {"min", tensor.min},
                               {"max", tensor.max},
                               {"mean", tensor.mean},
                               {"num_missing", tensor.num_missing},
                               {"num_infinite", tensor.num_infinite}});
  if (!set.classes.empty()) json["classes"] = set.classes;
  json["num_broken"] = set.num_broken;
  for (const BrokenSample& sample : set.broken)
    json["broken"].push_back({{"index", sample.index}, {"error", sample.error}});
  return json;
}

}  // namespace

int check_data(DataModule& data, bool as_json) {
  const auto* const table = dynamic_cast<const TableData*>(&data);
  const std::vector<std::string> names = data.class_names();
  std::vector<SetReport> sets;
  for (const auto& [name, loader] : loaders_of(data))
    sets.push_back(report_of(name, *loader, table != nullptr, names.size()));
  const bool has_broken = std::ranges::any_of(sets, [](const SetReport& set) { return set.num_broken > 0; });
  const std::vector<std::string> skipped = data.skipped_samples();
  if (as_json) {
    for (const SetReport& set : sets) std::cout << json_of(set).dump() << "\n";
    if (!skipped.empty()) std::cout << ordered_json{{"skipped", skipped}}.dump() << "\n";
    return has_broken ? kDataErrorCode : 0;
  }
  print_tensors(sets);
  if (table != nullptr) print_columns(sets, table->schema());
  print_classes(sets, names);
  for (const std::string& text : skipped) std::cout << "skipped: " << one_line(text) << "\n";
  for (const std::string& note : notes_of(sets, names)) std::cout << "note: " << note << "\n";
  for (const SetReport& set : sets) {
    for (const BrokenSample& sample : set.broken)
      std::cout << "broken: " << set.name << ", sample " << sample.index << ": " << sample.error << "\n";
    if (set.num_broken > static_cast<std::int64_t>(set.broken.size()))
      std::cout << "broken: " << set.name << ", "
                << set.num_broken - static_cast<std::int64_t>(set.broken.size()) << " more\n";
  }
  return has_broken ? kDataErrorCode : 0;
}

}  // namespace kindling
