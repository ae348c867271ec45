#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "kindling/data/image_data.h"

namespace kindling {

// What follows each other in the records of a CIFAR file: label bytes, then 32 x 32 red, green, blue values.
struct CifarRecord {
  static constexpr std::int64_t kPixelBytes = 3 * 32 * 32;
  std::int64_t num_labels = 1;
  std::int64_t label = 0;  // which of the label bytes counts
  std::int64_t num_classes = 10;

  std::int64_t num_bytes() const noexcept { return num_labels + kPixelBytes; }
};

// Returns the number of records by the file's size. Throws DataError if that is not a whole number of them.
std::int64_t count_cifar_records(const std::filesystem::path& file, const CifarRecord& record);

// Reads the files one after another: images uint8 [n, 3, 32, 32], labels uint8 [n]. Checks all sizes before
// it allocates. Throws DataError with the file, and the byte of a label that is no class.
LabelledImages read_cifar_files(const std::vector<std::filesystem::path>& paths, const CifarRecord& record);

}  // namespace kindling
