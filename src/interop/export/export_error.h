#pragma once

#include <string>

namespace kindling {

// Thrown where a forward cannot become a program; whoever catches it knows the operator and the layer.
struct ExportError {
  std::string found;   // "it reads a value on the host"
  std::string remedy;  // what the model's author can do
};

}  // namespace kindling
