#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kindling {

// What a directory of images decides about a config.
struct ImageFacts {
  std::string data_name{};  // image_folder, segmentation_folder; empty: there are no class directories
  std::filesystem::path root{}, val_root{};  // val_root: empty: a part of root is for validation
  std::string layout{};                      // why: "train and val are directories in it"
  std::string images{}, masks{};             // of a segmentation: the directories in root
  std::vector<std::int64_t> mask_values{};   // of a segmentation
  std::size_t num_classes = 0;               // 0: unknown
  // Of some files: 3 if one of them has colors, and whether the others have none; the size to which all are
  // to be resized, absent if they have the same; why.
  std::int64_t channels = 0;
  bool has_other_channels = false;
  std::array<std::int64_t, 2> size{};  // height, width
  bool resizes = false;
  std::string sizes{};  // "images of 2 sizes, such as 90 x 120 and 480 x 640"
};

// Reads directories, some images, and all masks of a segmentation. Files that cannot be read are left to the
// data module, which names them. Throws ConfigError for a data set of boxes.
ImageFacts facts_of_images(const std::filesystem::path& root);

}  // namespace kindling
