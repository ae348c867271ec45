#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "kindling/data/image_data.h"
#include "kindling/formats/idx.h"

namespace kindling {

// Returns the values as a tensor of the same shape (uint8, int8, int16, int32, float or double).
at::Tensor idx_tensor(const IdxArray& array);

// Reads a pair of IDX files, plain or .gz: images uint8 [n, h, w] or [n, c, h, w], labels uint8 [n]. Throws
// DataError that names the file for anything else and for different numbers of samples.
LabelledImages read_labelled_images(const std::filesystem::path& images, const std::filesystem::path& labels);

}  // namespace kindling
