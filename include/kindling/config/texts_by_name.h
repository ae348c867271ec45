#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kindling {

// One text for each name, such as old and new names: {old = "new"}.
using TextMap = std::map<std::string, std::string>;

// Texts that concern everything, or each name: ["?"] or {age = ["-1"]}.
struct TextsByName {
  TextsByName() = default;
  TextsByName(std::initializer_list<std::string> list) : all(list) {}
  TextsByName(std::vector<std::string> list) : all(std::move(list)) {}

  std::vector<std::string> all{};
  std::map<std::string, std::vector<std::string>> by_name{};  // not empty: given in place of `all`

  bool empty() const noexcept { return all.empty() && by_name.empty(); }
  friend bool operator==(const TextsByName&, const TextsByName&) = default;
};

}  // namespace kindling
