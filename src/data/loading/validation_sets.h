#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"

namespace kindling {

struct ValidationSet {
  std::string suffix;  // of the names in records: empty for val_dataloader(), else "/NAME"
  std::shared_ptr<DataLoader> loader;
};

// Returns the name of a value of the set in records: "val_loss/night", "val_confusion/night[0][1]".
std::string name_in_set(const std::string& name, const std::string& suffix);

// Returns all validation sets of prepared data, that of val_dataloader() first; none if it is absent. Throws
// DataError for further sets without it, and for those without a loader or a name of their own.
KINDLING_API std::vector<ValidationSet> validation_sets_of(DataModule& data);

}  // namespace kindling
