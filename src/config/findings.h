#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/config_tree.h"
#include "kindling/base/export.h"

namespace kindling::config {

// One error in a config.
struct Finding {
  ConfigPlace place;
  std::string text;        // "unknown key 'trainer.max_epoch'"
  std::string hint{};      // "did you mean 'max_epochs'?"
  bool shows_line = true;  // false if the text already quotes everything
};

// Returns the place of a byte in a source's text.
ConfigPlace place_at(const ConfigSource& source, std::size_t offset);

// Throws ConfigError with all findings, one per line, in the order of `sources`, lines and columns.
[[noreturn]] KINDLING_API void throw_findings(std::vector<Finding> findings,
                                              const std::vector<const ConfigSource*>& sources);

}  // namespace kindling::config
