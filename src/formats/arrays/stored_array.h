#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "formats/arrays/row_source.h"
#include "kindling/formats/safetensors.h"

// Where the values of arrays are in their files, so that rows can be read without the others.
namespace kindling {

struct StoredArray {
  std::string name{};  // empty: the file has one array
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape{};
  std::size_t begin = 0, size_bytes = 0;    // of the values: little-endian
  bool is_column_major = false;             // see NpyArray
  bool is_compressed = false;               // then type, shape and begin are not known
  bool is_requested = true;                 // false: the name alone is known
  std::shared_ptr<const RowSource> rows{};  // of a file whose values are not simply from `begin` on
};

// Read headers, no values. The first three throw as read_npy(), read_npz() and SafetensorsFile do, with
// DataError; arrays of an archive are only described if they are among `names`.
StoredArray stored_npy(const std::filesystem::path& path);
std::vector<StoredArray> stored_npz(const std::filesystem::path& path, const std::set<std::string>& names);
std::vector<StoredArray> stored_safetensors(const std::filesystem::path& path);
// A file of values alone. `samples`: their type and the shape of each, such as "float32[3, 64, 64]" or
// "int64"; the size of the file says how many there are. Throws ConfigError with the place `key` if `samples`
// is not such a text, and DataError if the file has another size.
StoredArray stored_raw(const std::filesystem::path& path, const std::string& samples, const std::string& key);

}  // namespace kindling
