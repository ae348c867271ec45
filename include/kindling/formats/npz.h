#pragma once

#include <filesystem>
#include <span>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"

namespace kindling {

// Writes a file that Python's numpy.load reads, with an array for each tensor, uncompressed. Atomic and
// durable (write_file_atomically). Throws CheckpointError for duplicate names, names that are empty or
// contain '/', sizes that do not match type and shape, and types that NumPy does not have (bfloat16, float8).
KINDLING_API void write_npz(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace kindling
