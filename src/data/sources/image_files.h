#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Labelled image files.
struct ImageFiles {
  std::filesystem::path folder{};      // the names are relative to it
  std::vector<std::string> names{};    // one per sample
  std::vector<std::int64_t> labels{};  // one per sample, unless `targets` are defined
  at::Tensor targets{};           // several labels, uint8 [samples, classes], or float32 [samples, targets]
  std::vector<double> weights{};  // one per sample; empty: none
  std::vector<std::string> classes{};  // the name of each label
  std::vector<std::string> unread{};   // an error for each image whose format is not read

  std::filesystem::path path(std::size_t sample) const { return folder / names[sample]; }
};

// Returns the images in the class directories of `root` and the directories in them, by class, directory and
// name: files whose ending or first bytes are those of a format that
// Kindling reads. Images of other formats, other files and hidden ones are counted and named by warnings.
// A directory that holds runs is no class, which is logged.
// Throws DataError for a missing directory and for a class without images.
// `key`: that names the directory.
ImageFiles files_in_class_folders(const std::filesystem::path& root, const std::string& key = "data.root");

// True for a directory of runs, with NAME/0001/config.toml, as a run started in `root` leaves it there.
KINDLING_API bool holds_runs(const std::filesystem::path& folder);

// A table with a row per image.
struct ImageList {
  std::filesystem::path file{}, folder{};  // of the table; that the images are relative to
  std::string image{}, label{};            // columns
  std::string label_separator{};           // of several labels in a cell; empty: a cell is one label
  std::vector<std::string> target{};       // columns of numbers, instead of the label
  std::string weights{};                   // another column; empty: none
  bool must_exist = true;                  // files that do not exist are an error
};

// Returns the files of a table in its order. Warns of files with several rows, and of columns of boxes.
// Throws DataError with the row, and ConfigError for a missing column.
ImageFiles files_in_list(const ImageList& list);

// Decodes every file, on several threads, removes those that are broken and logs a warning about them.
// Returns the error of each removed file, which begins with its path. Throws DataError if none is left.
std::vector<std::string> drop_broken_files(ImageFiles& files);

}  // namespace kindling
