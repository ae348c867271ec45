#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>
#include <string>

#include "formats/pt2/exported_program.h"

namespace kindling {

// Thrown if a forward pass cannot become a program; the code that catches it adds the operator and layer.
struct ExportError {
  std::string found;   // "it reads a value on the host"
  std::string remedy;  // what the author of the model can do
};

// Returns the description of a tensor. Throws ExportError for a tensor that programs cannot contain.
ProgramTensor recorded_tensor(const at::Tensor& tensor);

// Returns an argument of an operator according to its schema. `tensor` returns the value of a defined tensor.
// Throws ExportError for arguments that a program cannot contain.
ProgramArgument recorded_argument(const c10::Argument& schema, const c10::IValue& value,
                                  const std::function<ProgramArgument(const at::Tensor&)>& tensor);

}  // namespace kindling
