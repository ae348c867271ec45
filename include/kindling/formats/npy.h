#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"

// NumPy's formats: .npy has one array, and .npz is a zip archive of such files.
namespace kindling {

// The contents of a .npy file.
struct NpyArray {
  std::string name{};  // in a .npz file, without ".npy"; else empty
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape{};  // empty: one value
  // The first index varies fastest, as in Fortran: the bytes are those of the transposed array in row-major
  // order.
  bool is_column_major = false;
  std::string bytes{};  // the values, in this machine's byte order
};

// Read files of numpy.save, numpy.savez and numpy.savez_compressed. All throw DataError with the path or
// `place` and, in an archive, the name of the array: for damaged files, Python objects (which are pickled),
// texts, dates, structured and big-endian types. They never allocate more than the file holds; compressed
// arrays of an archive may be, together, a hundred times as large as it.
KINDLING_API NpyArray read_npy(const std::filesystem::path& path);
KINDLING_API NpyArray parse_npy(std::string_view bytes, const std::string& place);
// Of an archive, only the arrays of these names are read; of the others the name alone.
KINDLING_API std::vector<NpyArray> read_npz(const std::filesystem::path& path,
                                            const std::set<std::string>& names);
KINDLING_API std::vector<NpyArray> read_npz(const std::filesystem::path& path);
KINDLING_API std::vector<NpyArray> parse_npz(std::string bytes, const std::string& place);

}  // namespace kindling
