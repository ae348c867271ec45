#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
struct PublishedData {
  std::string_view name{};
  std::string_view url{};      // of the files or the archive, up to their names
  std::string_view archive{};  // empty: the files are downloaded one by one
  FileSum archive_sum{};
  std::string_view archive_folder{};  // the directory that the archive contains
  std::vector<PublishedFile> files{};
};

// Returns the data sets that `kindling data fetch` knows.
std::span<const PublishedData> published_data();

}  // namespace kindling
