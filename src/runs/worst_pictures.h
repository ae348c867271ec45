#pragma once

#include <filesystem>
#include <vector>

#include "kindling/formats/image.h"

namespace kindling {

// Reads the pictures of worst_pictures.npy, in the order of worst_predictions.csv. Returns none if the file
// is missing, larger than 64 MiB or not uint8 [samples, height, width, 1 or 3].
std::vector<Image> read_worst_pictures(const std::filesystem::path& file);
// The same for worst_masks.npy, uint8 [samples, 2, height, width]: the labels and the prediction of each
// sample in turn, with a class number per pixel.
std::vector<Image> read_worst_masks(const std::filesystem::path& file);

}  // namespace kindling
