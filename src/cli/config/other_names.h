#pragma once

#include <string>
#include <string_view>

#include "kindling/config/reader.h"

namespace kindling {

// Lets a reader answer the names of Lightning, PyTorch, and Keras with Kindling's.
void add_other_names(ConfigReader& reader);

// Returns the key that a key of another framework corresponds to: "optimizer.lr" for "learning_rate" or
// "learning-rate"; empty if there is none.
std::string key_for_other_name(std::string_view name);

}  // namespace kindling
