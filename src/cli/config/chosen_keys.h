#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/config_tables.h"
#include "kindling/cli/registry.h"
#include "kindling/config/document.h"

namespace kindling {

// A key that the config lacked.
struct ChosenKey {
  std::string key{}, value{};  // as TOML
  std::string reason{};
};

// Returns "model.name = \"mlp\"" for each.
std::vector<std::string> texts_of(const std::vector<ChosenKey>& chosen);

// What decides before the data do.
struct FormerChoices {
  // Of weights that the model starts with: whether it scales its targets, and its number of classes; 0:
  // unknown.
  std::optional<bool> has_target_scale{};
  std::size_t num_classes = 0;
  // All values of the run that is resumed, which keeps them.
  std::optional<std::map<std::string, std::string>> values{};
};

// Sets keys that a config leaves open and its data decide. For a table with `data.file` and `data.label` or
// `data.target`: data.name, model.name, the number of classes or targets, the split, epochs, and for a small
// table the batch size. For a directory of images, `data.root` without data.name: data.name, its directories,
// their size, the split, model.name, the number of classes, and epochs. For a regression on a table or
// arrays: model.scale_target. Returns what it has set. Leaves a config as it is that has all keys, as that of
// a run has, and one whose file cannot be read: what reads it afterwards says why.
std::vector<ChosenKey> choose_keys(ConfigDocument& document, const Registry& registry, ConfigUse use,
                                   FormerChoices former = {});

}  // namespace kindling
