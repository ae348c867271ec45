#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "formats/hdf5/hdf5_library.h"
#include "kindling/formats/safetensors.h"

namespace kindling {

// How the values of a data set are stored.
struct Hdf5Type {
  TensorType type = TensorType::float32;
  bool is_swapped = false;  // they have the other byte order than the host
  bool is_pair = false;     // the real and the imaginary part of a complex number, each of `type`
  // False: as the library converts them, such as integers of 3 bytes.
  bool is_plain = true;
};

// Returns nullopt for types that are not numbers. Requires a turn.
std::optional<Hdf5Type> hdf5_type_of(hid_t type);
// Describes any other type for an error: "texts", "a compound of 'a', 'b'". Requires a turn.
std::string hdf5_type_text(hid_t type);
// Returns the type of the values in memory, whose copy belongs to the library. Requires a turn.
hid_t native_hdf5_type(TensorType type);

}  // namespace kindling
