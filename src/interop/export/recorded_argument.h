#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>

#include "formats/pt2/exported_program.h"

namespace kindling {

// What is known of a tensor. Throws ExportError for one that programs do not have.
ProgramTensor recorded_tensor(const at::Tensor& tensor);

// An argument of an operator, as its schema has it. `tensor` says which value a defined tensor is. Throws
// ExportError for what a program cannot hold.
ProgramArgument recorded_argument(const c10::Argument& schema, const c10::IValue& value,
                                  const std::function<ProgramArgument(const at::Tensor&)>& tensor);

}  // namespace kindling
