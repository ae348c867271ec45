#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kindling/formats/safetensors.h"

namespace kindling {

// Returns NumPy's name of a type, such as "<f4"; empty: it has none.
std::string numpy_type_text(TensorType type);

// Returns the bytes before the values of a .npy file, whose size is a multiple of 64: a signature, the length
// of a Python dict, and the dict. `type`: as numpy_type_text() returns it.
std::string npy_header(const std::string& type, std::span<const std::int64_t> sizes);

}  // namespace kindling
