#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// A value of a JSON document from elsewhere, and its location there. Accessing it as another kind throws
// CheckpointError that names the location. The document must outlive it.
class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  JsonView operator[](std::string_view key) const;  // of an object that has the key
  bool has(std::string_view key) const;             // present and not null
  std::vector<JsonView> items() const;              // of a list
  struct Member;
  std::vector<Member> members() const;  // of an object
  Member only_member() const;           // of an object that tags one of several kinds: {"as_int": 3}

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

// Throws CheckpointError with the byte at which a text is not valid JSON.
nlohmann::json parse_json(const std::string& text, const std::string& place);

}  // namespace kindling
