#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace kindling {

// Random rectangles, of which torchvision's RandomResizedCrop and RandomErasing take the first that fits.
inline constexpr std::int64_t kBoxTries = 10;
inline constexpr std::int64_t kBoxRandom = 2 * kBoxTries + 2;  // areas, ratios, top, left

struct BoxOptions {
  std::int64_t height = 0, width = 0;      // of the image
  std::array<double, 2> scale{}, ratio{};  // area of the box / area of the image; between its sides
  // The rules of RandomErasing: ratio = height / width, sides from 0 to one less than those of the image.
  // Otherwise those of RandomResizedCrop: ratio = width / height, sides from 1 to those of the image.
  bool is_erasing = false;
};

// One box per sample, each tensor [batch]: whole pixels as floating-point numbers of the dtype of the random
// numbers, and whether one of the ten fits. Without one, height and width are 0.
struct RandomBoxes {
  at::Tensor top, left, height, width;
  at::Tensor found;  // bool
};

// Returns the boxes for `uniforms` [batch, kBoxRandom or more], whose first columns are used.
RandomBoxes random_boxes(const at::Tensor& uniforms, const BoxOptions& options);

}  // namespace kindling
