#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// A value of a JSON document that others have written, and where it stands in it. Asking for what it is not
// throws CheckpointError that names the place. The document outlives it.
class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  JsonView operator[](std::string_view key) const;  // of an object, which has it
  bool has(std::string_view key) const;             // as something other than null
  std::vector<JsonView> items() const;              // of a list
  struct Member;
  std::vector<Member> members() const;  // of an object
  Member only_member() const;           // of an object that is one of several kinds: {"as_int": 3}

  std::int64_t integer() const;
  double number() const;  // also "Infinity", "-Infinity" and "NaN"
  bool boolean() const;
  const std::string& text() const;
  bool is_integer() const { return value_->is_number_integer(); }

  [[noreturn]] void refuse(const std::string& found, const std::string& wanted = "",
                           const std::string& remedy = "") const;

 private:
  [[noreturn]] void refuse_kind(const std::string& wanted) const;

  const nlohmann::json* value_;
  std::string place_;
};

struct JsonView::Member {
  std::string key;
  JsonView value;
};

// Throws CheckpointError with the byte where a text stops being JSON.
nlohmann::json parse_json(const std::string& text, const std::string& place);

}  // namespace kindling
