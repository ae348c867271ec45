#include "formats/json_view.h"

#include <limits>

#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {

JsonView JsonView::operator[](std::string_view key) const {
  if (!value_->is_object()) refuse_kind("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) refuse("it has no " + json_string(key));
  return {*found, place_ + "." + std::string(key)};
}

bool JsonView::has(std::string_view key) const {
  if (!value_->is_object()) refuse_kind("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

std::vector<JsonView> JsonView::items() const {
  if (!value_->is_array()) refuse_kind("a list");
  std::vector<JsonView> items;
  for (std::size_t i = 0; i < value_->size(); ++i)
    items.emplace_back((*value_)[i], place_ + "[" + std::to_string(i) + "]");
  return items;
}

std::vector<JsonView::Member> JsonView::members() const {
  if (!value_->is_object()) refuse_kind("an object");
  std::vector<Member> members;
  for (const auto& [key, value] : value_->items()) members.push_back({key, {value, place_ + "." + key}});
  return members;
}

JsonView::Member JsonView::only_member() const {
  if (!value_->is_object() || value_->size() != 1) refuse_kind("an object with one member");
  const auto only = value_->begin();
  return {only.key(), {only.value(), place_ + "." + only.key()}};
}

std::int64_t JsonView::integer() const {
  if (!value_->is_number_integer()) refuse_kind("an integer");
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    refuse("the number is too large");
  return value_->get<std::int64_t>();
}

double JsonView::number() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (*value_ == "Infinity") return kInfinity;
  if (*value_ == "-Infinity") return -kInfinity;
  if (*value_ == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (!value_->is_number()) refuse_kind("a number");
  return value_->get<double>();
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) refuse_kind("a boolean");
  return value_->get<bool>();
}

const std::string& JsonView::text() const {
  if (!value_->is_string()) refuse_kind("a string");
  return value_->get_ref<const std::string&>();
}

void JsonView::refuse_kind(const std::string& wanted) const {
  refuse(std::string("it is ") + value_->type_name(), wanted);
}

void JsonView::refuse(const std::string& found, const std::string& wanted, const std::string& remedy) const {
  throw CheckpointError({.place = place_, .found = found, .wanted = wanted, .remedy = remedy});
}

nlohmann::json parse_json(const std::string& text, const std::string& place) {
  // The parser takes a zero byte for the end of its input.
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos)
    throw CheckpointError({.place = place + ", byte " + std::to_string(zero + 1),
                           .found = "the byte is 0, which JSON does not have",
                           .remedy = "the file is damaged: copy it again, or save it again"});
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw CheckpointError({.place = place + ", byte " + std::to_string(error.byte),
                           .found = "it is not valid JSON",
                           .remedy = "the file is damaged: copy it again, or save it again"});
  } catch (const nlohmann::json::exception&) {
    throw CheckpointError({.place = place, .found = "it has a number that is too large"});
  }
}

}  // namespace kindling
