#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace kindling {

// One text that a config was written in: a file, or one override of the command line.
struct ConfigSource {
  std::string name;                // as messages show it, one line
  std::filesystem::path base_dir;  // relative paths count from here
  std::string text{};              // empty for an override
};

struct ConfigPlace {
  const ConfigSource* source = nullptr;
  std::size_t line = 0;    // from 1; 0: the source as a whole
  std::size_t column = 0;  // from 1, in characters
  std::size_t length = 1;  // characters
};

struct ConfigNode;

// A date or a time, which no option takes.
struct ConfigDate {
  std::string text;
};

using ConfigArray = std::vector<ConfigNode>;
using ConfigTable = std::map<std::string, std::unique_ptr<ConfigNode>, std::less<>>;

struct ConfigNode {
  std::variant<bool, std::int64_t, double, std::string, ConfigDate, ConfigArray, ConfigTable> value;
  ConfigPlace key_place{};
  ConfigPlace place{};
  std::string written{};  // for a value of an override that is no string: its text, should a string be wanted
};

struct ConfigTree {
  std::vector<std::shared_ptr<const ConfigSource>>
      sources{};  // in the order of merging; owns what places point to
  ConfigTable root{};
};

}  // namespace kindling
