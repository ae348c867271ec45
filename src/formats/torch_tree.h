#pragma once

#include <span>
#include <string>

#include "formats/exported_program.h"
#include "kindling/formats/safetensors.h"

namespace kindling {

// The bytes of a file that Python's torch.load reads (weights_only=True) as `tree`, whose leaves are these
// tensors, in order. Their names do not matter.
std::string torch_file_of(const ProgramTree& tree, std::span<const TensorToWrite> leaves);

}  // namespace kindling
