#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "formats/pt2/exported_program.h"

// What a program's words are in LibTorch.
namespace kindling {

at::ScalarType scalar_type_of(ProgramType type);
ProgramType program_type_of(at::ScalarType type);  // throws Error for a type that programs do not have
at::MemoryFormat memory_format_of(ProgramMemoryFormat format);
at::Device device_of(const ProgramDevice& device);  // throws CheckpointError for a word that names no device

}  // namespace kindling
