#include "formats/hdf5/hdf5_array.h"
#include "kindling/base/error.h"

namespace kindling {

bool can_read_hdf5() noexcept { return false; }

std::vector<StoredArray> stored_hdf5(const std::filesystem::path& path, const std::set<std::string>&) {
  throw DataError({.place = path.string(),
                   .found = "HDF5 files cannot be read: Kindling was built without HDF5",
                   .wanted = "a build with it",
                   .remedy = "install libhdf5-dev (Debian's name) and configure the build again"});
}

}  // namespace kindling
