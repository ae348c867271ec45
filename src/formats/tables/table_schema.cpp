#include "kindling/formats/table_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/joined.h"
#include "formats/json_view.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

constexpr std::int64_t kFloat32Version = 1, kExactTextVersion = 2, kSchemaVersion = 3;

std::string json_list(const std::vector<std::string>& texts) {
  return "[" + joined(texts, ",", [](const std::string& text) { return json_string(text); }) + "]";
}

bool has_duplicates(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  return std::adjacent_find(texts.begin(), texts.end()) != texts.end();
}

std::string feature_text(const TableFeature& feature) {
  const bool is_number = feature.kind == ColumnKind::number;
  std::string text =
      "{\"name\":" + json_string(feature.name) + ",\"kind\":" + (is_number ? "\"number\"" : "\"category\"");
  if (!is_number) text += ",\"categories\":" + json_list(feature.categories);
  if (feature.is_declared) text += ",\"declared\":true";
  if (feature.offset) text += ",\"offset\":" + number_text(*feature.offset);
  return text + "}";
}

std::string unit_json(const std::pair<const std::string, NumberUnit>& named) {
  const auto& [name, unit] = named;
  return json_string(name) + ":{\"prefix\":" + json_string(unit.prefix) +
         ",\"suffix\":" + json_string(unit.suffix) + (unit.has_groups ? ",\"groups\":true}" : "}");
}

std::string window_text(const TableSchema& schema) {
  std::string text =
      ",\"window\":" + std::to_string(schema.window) + ",\"horizon\":" + std::to_string(schema.horizon);
  if (!schema.series.empty()) text += ",\"series\":" + json_string(schema.series);
  if (!schema.time.empty()) text += ",\"time\":" + json_string(schema.time);
  return text;
}

// Codes are indices, so that a name that occurs twice would be ambiguous.
std::vector<std::string> distinct_texts(const JsonView& list) {
  std::vector<std::string> texts;
  for (const JsonView& item : list.items()) texts.push_back(item.text());
  if (has_duplicates(texts)) list.refuse("a text occurs twice", "distinct texts");
  return texts;
}

std::vector<std::string> texts_in(const JsonView& object, const char* key) {
  return object.has(key) ? distinct_texts(object[key]) : std::vector<std::string>();
}

std::string text_in(const JsonView& object, const char* key) {
  return object.has(key) ? object[key].text() : std::string();
}

void read_units(const JsonView& view, TableSchema& schema) {
  if (!view.has("units")) return;
  for (const auto& [name, unit] : view["units"].members()) {
    schema.units[name] = {.prefix = unit["prefix"].text(),
                          .suffix = unit["suffix"].text(),
                          .has_groups = unit.has("groups") && unit["groups"].boolean()};
  }
}

void read_window(const JsonView& view, TableSchema& schema) {
  if (!view.has("window")) return;
  for (const auto& [key, number] :
       {std::pair{"window", &schema.window}, std::pair{"horizon", &schema.horizon}}) {
    *number = view[key].integer();
    if (*number < 1 || *number > 1'000'000'000) view[key].refuse(std::to_string(*number), "1 to 1000000000");
  }
  schema.series = text_in(view, "series");
  schema.time = text_in(view, "time");
}

TableFeature feature_of(const JsonView& view, std::int64_t version) {
  const std::string kind = view["kind"].text();
  if (kind != "number" && kind != "category") view["kind"].refuse("'" + kind + "'", "number or category");
  TableFeature feature{.name = view["name"].text(),
                       .kind = kind == "number" ? ColumnKind::number : ColumnKind::category};
  if (feature.kind == ColumnKind::category) {
    feature.categories = distinct_texts(view["categories"]);
    if (!std::is_sorted(feature.categories.begin(), feature.categories.end()))
      view["categories"].refuse("the texts are not sorted", "texts that are sorted bytewise");
  }
  feature.is_declared = view.has("declared") && view["declared"].boolean();
  if (!view.has("offset")) return feature;
  if (feature.kind != ColumnKind::number || version == kFloat32Version)
    view["offset"].refuse("an offset",
                          "an offset of a column of numbers, in a description of version 2 or later");
  feature.offset = view["offset"].number();
  if (!std::isfinite(*feature.offset)) view["offset"].refuse("it is not finite", "a finite number");
  return feature;
}

}  // namespace

std::string TableSchema::text() const {
  const std::int64_t version = !scales_in_double ? kFloat32Version
                               : unifies_values  ? kSchemaVersion
                                                 : kExactTextVersion;
  std::string text = "{\"version\":" + std::to_string(version) + ",\"features\":[" +
                     joined(features, ",", feature_text) + "]";
  if (!targets.empty()) text += ",\"targets\":" + json_list(targets);
  if (!label.empty()) text += ",\"label\":" + json_string(label) + ",\"classes\":" + json_list(classes);
  if (!label_separator.empty()) text += ",\"label_separator\":" + json_string(label_separator);
  if (!id.empty()) text += ",\"id\":" + json_string(id);
  if (!dates.empty()) text += ",\"dates\":" + json_list(dates);
  if (!units.empty()) text += ",\"units\":{" + joined(units, ",", unit_json) + "}";
  if (window > 0) text += window_text(*this);
  if (!booleans.empty()) text += ",\"booleans\":" + json_list(booleans);
  if (!integers.empty()) text += ",\"integers\":" + json_list(integers);
  return text + "}";
}

TableSchema TableSchema::parse(const std::string& text, const std::string& place) {
  const nlohmann::json document = parse_json(text, place);
  const JsonView view(document, place);
  const std::int64_t version = view["version"].integer();
  if (version < kFloat32Version || version > kSchemaVersion)
    view["version"].refuse(std::to_string(version), "1, 2 or 3", "use the version of Kindling that wrote it");
  TableSchema schema{.targets = texts_in(view, "targets"),
                     .label = text_in(view, "label"),
                     .classes = texts_in(view, "classes"),
                     .label_separator = text_in(view, "label_separator"),
                     .id = text_in(view, "id"),
                     .dates = texts_in(view, "dates"),
                     .scales_in_double = version != kFloat32Version,
                     .booleans = texts_in(view, "booleans"),
                     .integers = texts_in(view, "integers"),
                     .unifies_values = version == kSchemaVersion};
  read_units(view, schema);
  read_window(view, schema);
  std::vector<std::string> names;
  for (const JsonView& feature : view["features"].items()) {
    schema.features.push_back(feature_of(feature, version));
    names.push_back(schema.features.back().name);
  }
  if (names.empty()) view["features"].refuse("an empty list", "at least one column");
  if (has_duplicates(names)) view["features"].refuse("two columns have the same name", "distinct names");
  return schema;
}

std::size_t TableSchema::num_encoded() const {
  std::size_t count = 0;
  for (const TableFeature& feature : features)
    count += feature.kind == ColumnKind::number ? 1 : feature.categories.size();
  return count;
}

bool TableSchema::has_offsets() const {
  return std::ranges::any_of(features,
                             [](const TableFeature& feature) { return feature.offset.has_value(); });
}

TableOptions TableSchema::table_options() const {
  TableOptions options{.known_categories = dates, .skips_others = true};
  const auto is_computed = [&](const TableFeature& feature) {
    return std::ranges::any_of(dates, [&](const std::string& date) {
      return std::ranges::any_of(kDateParts,
                                 [&](const char* part) { return feature.name == date + "." + part; });
    });
  };
  for (const TableFeature& feature : features) {
    if (is_computed(feature)) continue;
    auto& names = units.contains(feature.name)         ? options.known_categories  // texts with the unit
                  : feature.kind == ColumnKind::number ? options.numbers
                  : feature.is_declared                ? options.categories
                                                       : options.known_categories;
    names.push_back(feature.name);
  }
  return options;
}

}  // namespace kindling
