#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "formats/pt2/exported_program.h"

// Converts types, layouts and devices of programs to those of LibTorch.
namespace kindling {

at::ScalarType scalar_type_of(ProgramType type);
ProgramType program_type_of(at::ScalarType type);  // throws Error for unsupported dtypes
at::MemoryFormat memory_format_of(ProgramMemoryFormat format);
at::Device device_of(const ProgramDevice& device);  // throws CheckpointError for unknown devices

}  // namespace kindling
