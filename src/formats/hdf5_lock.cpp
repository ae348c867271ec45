#include "formats/hdf5_lock.h"

namespace kindling {

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace kindling
