#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"

namespace kindling {

// Texts in UTF-8 to write, borrowed for the call.
struct TextsToWrite {
  std::string name = {};
  std::span<const std::string> texts = {};
};

// Writes a file that Python's numpy.load reads, with an array for each tensor, uncompressed, and after them
// an array of Unicode texts (NumPy's type U) for each of `texts`, 4 bytes per character of its longest text.
// Atomic and durable (write_file_atomically). Throws CheckpointError for duplicate names, names that are
// empty or contain '/', sizes that do not match type and shape, and types that NumPy does not have (bfloat16,
// float8).
KINDLING_API void write_npz(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                            std::span<const TextsToWrite> texts = {});

}  // namespace kindling
