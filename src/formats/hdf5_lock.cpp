#include "formats/hdf5_lock.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace kindling {
namespace {

void flush_and_leave(int status, void* /*argument*/) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Exit handlers run in reverse order, and HDF5 has registered its own when it was first used.
void leave_before_hdf5_exits() {
  static const int registered = ::on_exit(flush_and_leave, nullptr);
  static_cast<void>(registered);
}

}  // namespace kindling
