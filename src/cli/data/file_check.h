#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/data/published_data.h"

namespace kindling {

// repacked: another compression of the right content. unverified: the size is right and no sum is known.
enum class FileState { right, repacked, unverified, missing, wrong };

// Returns "ok", "ok, compressed differently", …
const char* state_text(FileState state);

struct CheckedFile {
  std::filesystem::path path{};  // as found; of a missing file as it is downloaded or unpacked
  FileSum wanted{};
  FileState state = FileState::missing;
  std::string problem{};  // of a wrong file: what was found

  bool is_usable() const { return state != FileState::missing && state != FileState::wrong; }
};

// Reads the files of a data set in `root`, in the places where the data module looks for them, and compares
// them with the published sums. Files that cannot be read count as wrong.
std::vector<CheckedFile> check_files(const PublishedData& data, const std::filesystem::path& root);

// The same for the archive of a data set that has one.
CheckedFile check_archive(const PublishedData& data, const std::filesystem::path& root);

}  // namespace kindling
