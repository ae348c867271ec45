#include "formats/netcdf/netcdf_array.h"
#include "kindling/base/error.h"

namespace kindling {

bool can_read_netcdf() noexcept { return false; }

std::vector<StoredArray> stored_netcdf(const std::filesystem::path& path, const std::set<std::string>&,
                                       const std::string&, NetcdfDecoding) {
  throw DataError({.place = path.string(),
                   .found = "NetCDF files cannot be read: Kindling was built without NetCDF",
                   .wanted = "a build with it",
                   .remedy = "install libnetcdf-dev (Debian's name) and configure the build again"});
}

}  // namespace kindling
