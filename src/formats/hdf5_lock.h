#pragma once

#include <mutex>

namespace kindling {

// Held while functions of the libraries HDF5 and NetCDF, which calls it, are called.
std::recursive_mutex& hdf5_mutex();

}  // namespace kindling
