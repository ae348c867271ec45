#pragma once

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
  std::vector<std::int64_t> labels{};  // one per sample
  std::vector<double> weights{};       // one per sample; empty: none
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

// Returns the files of a table with the columns file and label, in its order. Throws DataError with the
// row, and ConfigError for a missing column. `weights`: another column; empty: none. `must_exist`: files that
// do not exist are an error.
ImageFiles files_in_list(const std::filesystem::path& list, const std::filesystem::path& folder,
                         const std::string& weights, bool must_exist);

// Decodes every file, on several threads, removes those that are broken and logs a warning about them.
// Returns the error of each removed file, which begins with its path. Throws DataError if none is left.
std::vector<std::string> drop_broken_files(ImageFiles& files);

}  // namespace kindling
