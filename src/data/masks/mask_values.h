#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/masks/mask_pairs.h"
#include "kindling/base/export.h"
#include "kindling/data/segmentation_folder.h"
#include "kindling/formats/image.h"

namespace kindling {

// What the values in the files of masks mean.
struct MaskValues {
  static constexpr std::int16_t kIgnored = -100, kNoClass = -1;

  std::array<std::int16_t, 256> labels{};  // by value: a class, kIgnored or kNoClass
  std::vector<std::string> classes{};      // names; or numbers, if they were counted
  std::string wanted{};                    // for messages: "values from 0 to 2, or 255, which is ignored"

  // Throws DataError that names the first pixel of the mask whose value has no meaning.
  void check(const Image& mask, const std::filesystem::path& file) const;
};

// Returns the meaning of the values by the options. Without `classes` and `mask_values`, reads all masks, on
// several threads, and counts the classes: warns of numbers that do not occur. Throws DataError, also for
// masks of a single class.
KINDLING_API MaskValues mask_values_of(const MaskPairs& pairs, const SegmentationFolderOptions& options);

// Returns the values that occur in the masks, in order. Reads all masks, on several threads. Throws
// DataError.
KINDLING_API std::vector<std::int64_t> values_in_masks(const MaskPairs& pairs);

}  // namespace kindling
