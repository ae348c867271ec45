#pragma once

#include <string>

namespace kindling {

// Thrown if a forward pass cannot become a program; the code that catches it adds the operator and layer.
struct ExportError {
  std::string found;   // "it reads a value on the host"
  std::string remedy;  // what the author of the model can do
};

}  // namespace kindling
