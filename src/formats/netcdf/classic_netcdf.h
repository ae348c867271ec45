#pragma once

#include <cstdint>
#include <optional>

#include "kindling/base/file.h"

namespace kindling {

// Returns the number of bytes that a NetCDF file of the classic formats (CDF-1, CDF-2 and CDF-5) must have by
// its header; nullopt for other files, and for a header that the library does not read either. The library
// itself reads zeros beyond the end of a file that has been cut off.
std::optional<std::uint64_t> size_of_classic_netcdf(const InputFile& file);

}  // namespace kindling
