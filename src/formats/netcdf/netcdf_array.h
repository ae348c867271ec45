#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/joined.h"
#include "formats/arrays/stored_array.h"
#include "formats/netcdf/netcdf_packing.h"
#include "kindling/base/export.h"

namespace kindling {

// True if Kindling was built with the library NetCDF. Without it, stored_netcdf() throws DataError that names
// the package.
KINDLING_API bool can_read_netcdf() noexcept;

// True for the extensions of NetCDF files.
inline bool is_netcdf_file(const std::filesystem::path& path) {
  const std::string extension = lower_case(path.extension().string());
  return extension == ".nc" || extension == ".nc4" || extension == ".cdf";
}

// Describes the variables `names` of a NetCDF file of any format; those of groups are paths, such as
// "forecast/t2m". Samples are along the dimension `sample_dim`, or along the first one if that is empty; the
// other dimensions keep their order. Values are decoded when they are read (see NetcdfPacking). If a variable
// is missing, the names of all variables of the file follow, which are not requested.
//
// Throws DataError for a file that the library cannot read, for variables of texts or other types, and for
// one without the dimension.
KINDLING_API std::vector<StoredArray> stored_netcdf(const std::filesystem::path& path,
                                                    const std::set<std::string>& names,
                                                    const std::string& sample_dim, NetcdfDecoding decoding);

}  // namespace kindling
