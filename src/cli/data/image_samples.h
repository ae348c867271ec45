#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/run_config.h"
#include "kindling/formats/image.h"

namespace kindling {

// Training samples as pictures.
struct ImageSamples {
  std::vector<std::string> captions{};  // "7: cat", the number of the sample and its class
  std::vector<Image> before{};          // what the data module makes of the files
  std::vector<Image> after{};           // the same samples after the train transforms; empty: there are none
  std::vector<std::string> notes{};     // about values that are not within [0, 1]
};

// Returns the first training samples, in the order of the data set, or nothing if they are not images
// [samples, 1 or 3, height, width]. Random transforms draw the numbers of these samples in epoch 0 of a fit
// with the config's seed. Throws DataError for data without training samples.
std::optional<ImageSamples> image_samples(const RunConfig& config, std::int64_t num_samples);

// Pixels between the images of a grid.
inline constexpr std::int64_t kGridGap = 2;

// Returns all samples in one image, up to 8 in a row, on white: in cells of the size of the largest image,
// the transformed ones below the others.
Image image_grid(const ImageSamples& samples);

}  // namespace kindling
