#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config/config_tables.h"

namespace kindling {

// The size and the SHA-256 that the bytes of a file must have.
struct FileSum {
  std::int64_t size = 0;      // 0: unknown
  std::string_view sha256{};  // empty: not known from two independent sources
};

// A file that Kindling reads.
struct PublishedFile {
  std::string_view name{};
  FileSum sum{};
  FileSum compressed{};  // of `name`.gz, which is read as well; size 0: there is no such file
};

// A data set that users download: either its files one by one, compressed, or an archive of all.
// docs/reference/data_files.md says where.
struct PublishedData {
  std::string_view name{};
  std::string_view archive{};  // empty: the files are downloaded one by one
  FileSum archive_sum{};
  std::string_view archive_folder{};  // the directory that the archive contains
  std::vector<PublishedFile> files{};
};

std::span<const PublishedData> published_data();

// repacked: another compression of the right content. unverified: the size is right and no sum is known.
enum class FileState { right, repacked, unverified, missing, wrong };

struct CheckedFile {
  std::filesystem::path path{};  // as found; of a missing file as it is downloaded or unpacked
  FileSum wanted{};
  FileState state = FileState::missing;
  std::string problem{};  // of a wrong file: what was found

  bool is_usable() const { return state != FileState::missing && state != FileState::wrong; }
};

// Reads the files of a data set in `root`, in the places where the data module looks for them, and compares
// them with the published sums. Files that cannot be read count as wrong. If some are not usable, an archive
// in `root` is compared, too, as the first.
std::vector<CheckedFile> check_files(const PublishedData& data, const std::filesystem::path& root);

// Prints the files of the config's data set if users download it, and what is wrong with them; nothing for
// other data. Returns the exit code: 0 if all files are right, else that of a DataError.
int check_published_files(const ConfigTables& config, bool as_json);

}  // namespace kindling
