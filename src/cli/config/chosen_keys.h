#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kindling/cli/registry.h"
#include "kindling/config/document.h"

namespace kindling {

// A key that the config lacked.
struct ChosenKey {
  std::string key{}, value{};  // as TOML
  std::string reason{};
};

// Sets keys that a config leaves open and its data decide. For a table with `data.file` and `data.label` or
// `data.target`: data.name, model.name, the number of classes or targets, the split, epochs, and for a small
// table the batch size. For a regression on a table or arrays: model.scale_target, which is that of the
// weights if `has_target_scale` says it. Returns what it has set. Leaves a config as it is that has all keys
// of its data, as that of a run has, and one whose file cannot be read: what reads it afterwards says why.
std::vector<ChosenKey> choose_keys(ConfigDocument& document, const Registry& registry,
                                   std::optional<bool> has_target_scale = {});

}  // namespace kindling
