#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// The origin of a part of a config: a file, or one override of the command line.
struct ConfigSource {
  std::string name;                // shown in messages, one line
  std::filesystem::path base_dir;  // relative paths are resolved against this
  std::string text{};              // empty for an override
};

struct ConfigPlace {
  const ConfigSource* source = nullptr;
  std::size_t line = 0;    // from 1; 0: the source as a whole
  std::size_t column = 0;  // from 1, in characters
  std::size_t length = 1;  // characters
};

struct ConfigNode;

// A date or a time, which no option accepts.
struct ConfigDate {
  std::string text;
};

using ConfigArray = std::vector<ConfigNode>;
using ConfigTable = std::map<std::string, std::unique_ptr<ConfigNode>, std::less<>>;

struct ConfigNode {
  std::variant<bool, std::int64_t, double, std::string, ConfigDate, ConfigArray, ConfigTable> value;
  ConfigPlace key_place{};
  ConfigPlace place{};
  std::string written{};  // the text of an override's value that is not a string, for options that expect one
};

struct ConfigTree {
  std::vector<std::shared_ptr<const ConfigSource>>
      sources{};  // in the order of merging; places point to them
  ConfigTable root{};
};

namespace config {

// Returns the tree of a source's TOML text, with the place of every key and value. The source must outlive
// the tree's places. Throws ConfigError with line and column for text that is not TOML, is too large or
// nested too deeply.
KINDLING_API ConfigTable parse_toml(const ConfigSource& source);

}  // namespace config
}  // namespace kindling
