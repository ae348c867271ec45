#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kindling {

// What a directory of images decides about a config.
struct ImageFacts {
  std::string data_name{};  // image_folder, segmentation_folder; empty: there are no class directories
  std::filesystem::path root{}, val_root{};  // val_root: empty: a part of root is for validation
  std::string layout{};                      // why: "train and val are directories in it"
  std::string images{}, masks{};             // of a segmentation: the directories in root
  std::vector<std::int64_t> mask_values{};   // of a segmentation: all that occur; empty: unknown
  std::size_t num_classes = 0;               // of class directories
  // Of some files: 3 if one of them has colors, and whether the others have none; the size to which all are
  // to be resized, absent if they have the same; why.
  std::int64_t channels = 0;
  bool has_other_channels = false;
  std::array<std::int64_t, 2> size{};  // height, width
  bool resizes = false;
  std::string sizes{};  // "images of 2 sizes, such as 90 x 120 and 480 x 640"
};

// Reads directories, some images, and all masks of a segmentation. Files that cannot be read are left to the
// data module, which names them. Throws ConfigError for a data set of boxes, for a split of masks, for a
// single class, and for directories that are not classes by their names.
ImageFacts facts_of_images(const std::filesystem::path& root);

// Returns the directory in it that has the classes: train; or itself.
std::filesystem::path training_root(const std::filesystem::path& root);

// Returns the values of the classes in the masks of a segmentation; none if there are fewer than two. Throws
// ConfigError unless they are 0, 1, …, or 0 and 255: one of the others may stand for no class.
std::vector<std::int64_t> class_values(const ImageFacts& facts, std::optional<std::int64_t> ignore_index);

}  // namespace kindling
