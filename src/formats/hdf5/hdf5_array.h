#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/joined.h"
#include "formats/arrays/stored_array.h"
#include "kindling/base/export.h"

namespace kindling {

// True if Kindling was built with the library HDF5. Without it, stored_hdf5() throws DataError that names the
// package.
KINDLING_API bool can_read_hdf5() noexcept;

// True for the extensions of HDF5 files.
inline bool is_hdf5_file(const std::filesystem::path& path) {
  const std::string extension = lower_case(path.extension().string());
  return extension == ".h5" || extension == ".hdf5";
}

// Describes the data sets `names` of a HDF5 file, which are paths with or without a leading slash. If one of
// them is missing, the names of the other data sets of the file follow, which are not requested.
//
// Values are bit-identical to those of h5py. Booleans of h5py are boolean, other enums are their integers,
// and complex numbers, {r, i} or {real, imag}, become [..., 2] of their parts. Chunks that are compressed
// with gzip, shuffled or have checksums are decoded by the threads that read them, and all others by the
// library, one at a time. The file stays open, and locked against writers, as long as there is an array.
//
// Throws DataError for a file that HDF5 cannot read, for a file that another process writes, and for data
// sets of other types or whose filter is missing.
KINDLING_API std::vector<StoredArray> stored_hdf5(const std::filesystem::path& path,
                                                  const std::set<std::string>& names);

}  // namespace kindling
