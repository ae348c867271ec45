#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Images and their masks.
struct MaskPairs {
  std::filesystem::path images_folder{}, masks_folder{};  // the names are relative to them
  std::vector<std::string> images{}, masks{};             // one of each per pair; no masks for prediction
  std::vector<std::string> unpaired{};                    // a text for each file that is not used

  std::filesystem::path image(std::size_t pair) const { return images_folder / images[pair]; }
  std::filesystem::path mask(std::size_t pair) const { return masks_folder / masks[pair]; }
};

// Returns the pairs in two directories and the directories in them, sorted by the names of the images. Logs a
// warning that counts and names files without their counterpart. Throws DataError for a missing directory,
// for two files with the same name except for the ending, and without pairs.
KINDLING_API MaskPairs find_mask_pairs(const std::filesystem::path& images,
                                       const std::filesystem::path& masks);

// The name of a pair in a list: the path of its image without the ending; and where it is, as file:line.
struct PairName {
  std::string name, place;
};

// Returns the names in a file, one a line. Throws DataError if there are none.
std::vector<PairName> read_pair_names(const std::filesystem::path& list);

// Returns the pairs of these names, in their order. Throws DataError for a name without an image or a mask,
// and for one that is listed twice.
MaskPairs find_listed_pairs(const std::filesystem::path& images, const std::filesystem::path& masks,
                            const std::vector<PairName>& names);

// Returns the images in a directory and the directories in it, or the file, without masks. Throws DataError
// without any.
MaskPairs find_images(const std::filesystem::path& path);

}  // namespace kindling
