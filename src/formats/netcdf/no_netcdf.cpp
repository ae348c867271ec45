#include "formats/netcdf/netcdf_array.h"
#include "formats/netcdf/netcdf_writer.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_netcdf_file(const std::filesystem::path& path, const std::string& what) {
  throw DataError({.place = path.string(),
                   .found = "NetCDF files cannot be " + what + ": Kindling was built without NetCDF",
                   .wanted = "a build with it",
                   .remedy = "install libnetcdf-dev (Debian's name) and configure the build again"});
}

}  // namespace

bool can_read_netcdf() noexcept { return false; }

std::vector<StoredArray> stored_netcdf(const std::filesystem::path& path, const std::set<std::string>&,
                                       const std::string&, NetcdfDecoding) {
  refuse_netcdf_file(path, "read");
}

std::unique_ptr<RowWriter> netcdf_writer(const std::filesystem::path& path, std::span<const ColumnToWrite>,
                                         const RowTexts&, const RowOrigin&, std::int64_t) {
  refuse_netcdf_file(path, "written");
}

}  // namespace kindling
