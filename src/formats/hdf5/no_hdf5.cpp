#include "formats/hdf5/hdf5_array.h"
#include "formats/hdf5/hdf5_writer.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_hdf5_file(const std::filesystem::path& path, const std::string& what) {
  throw DataError({.place = path.string(),
                   .found = "HDF5 files cannot be " + what + ": Kindling was built without HDF5",
                   .wanted = "a build with it",
                   .remedy = "install libhdf5-dev (Debian's name) and configure the build again"});
}

}  // namespace

bool can_read_hdf5() noexcept { return false; }

std::vector<StoredArray> stored_hdf5(const std::filesystem::path& path, const std::set<std::string>&) {
  refuse_hdf5_file(path, "read");
}

std::unique_ptr<RowWriter> hdf5_writer(const std::filesystem::path& path, std::span<const ColumnToWrite>,
                                       const RowTexts&, const RowOrigin&) {
  refuse_hdf5_file(path, "written");
}

}  // namespace kindling
