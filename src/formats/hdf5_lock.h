#pragma once

#include <mutex>

namespace kindling {

// Held while functions of the libraries HDF5 and NetCDF, which calls it, are called.
std::recursive_mutex& hdf5_mutex();

// Call it when writing a file has failed, with HDF5 in use. Such a file cannot be closed either, and HDF5,
// which closes all open files in an exit handler of its own, then crashes. The process leaves before that,
// with its exit status and its streams flushed.
void leave_before_hdf5_exits();

}  // namespace kindling
