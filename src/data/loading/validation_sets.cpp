#include "data/loading/validation_sets.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kindling/base/error.h"

namespace kindling {

std::string name_in_set(const std::string& name, const std::string& suffix) {
  const std::size_t end = name.ends_with(']') ? std::min(name.find('['), name.size()) : name.size();
  return name.substr(0, end) + suffix + name.substr(end);
}

std::vector<ValidationSet> validation_sets_of(DataModule& data) {
  std::vector<ValidationSet> sets;
  if (auto first = data.val_dataloader()) sets.push_back({.suffix = "", .loader = std::move(first)});
  std::set<std::string> names;
  for (auto& [name, loader] : data.more_val_dataloaders()) {
    const auto refuse = [&](const std::string& found, const std::string& wanted) {
      throw DataError({.place = "DataModule::more_val_dataloaders", .found = found, .wanted = wanted});
    };
    if (sets.empty()) refuse("there is no val_dataloader()", "one for the set whose values have no suffix");
    if (name.empty()) refuse("a validation set has no name", "a name for each set");
    // They separate names in records and curves.
    if (name.find_first_of("/[]") != std::string::npos)
      refuse("a validation set is named '" + name + "'", "a name without /, [ and ]");
    if (!loader) refuse("the validation set '" + name + "' has no loader", "a loader for each set");
    if (!names.insert(name).second) refuse("two validation sets are named '" + name + "'", "distinct names");
    sets.push_back({.suffix = "/" + name, .loader = std::move(loader)});
  }
  return sets;
}

}  // namespace kindling
