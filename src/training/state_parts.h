#pragma once

#include <string>

#include "kindling/tensors/state_dict.h"

namespace kindling {

// A saved training is one list of names: each part has a prefix of its own there.
inline void put(StateDict& state, const std::string& prefix, const StateDict& part) {
  for (const auto& [name, tensor] : part.tensors) state.tensors.emplace_back(prefix + name, tensor);
  for (const auto& [name, value] : part.metadata) state.metadata[prefix + name] = value;
}

inline StateDict part_of(const StateDict& state, const std::string& prefix) {
  StateDict part;
  for (const auto& [name, tensor] : state.tensors)
    if (name.starts_with(prefix)) part.tensors.emplace_back(name.substr(prefix.size()), tensor);
  for (const auto& [name, value] : state.metadata)
    if (name.starts_with(prefix)) part.metadata[name.substr(prefix.size())] = value;
  return part;
}

}  // namespace kindling
