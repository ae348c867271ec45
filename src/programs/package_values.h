#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>

#include "formats/exported_program.h"
#include "programs/compiled_code.h"

namespace kindling {

// The values of all constants of a package's code, by their names: of a program's weights, which come in the
// order of program.inputs without the user's. Throws CheckpointError unless each constant is one of these, of
// the same shape and dtype, and each weight that the outputs depend on has a constant.
std::map<std::string, at::Tensor> values_for(const CompiledCode& code, const ExportedProgram& program,
                                             std::span<const at::Tensor> weights);

}  // namespace kindling
