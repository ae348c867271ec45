#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace kindling {

// Throws what stands for an error of LibTorch at an entry point of Kindling, the original nested in it:
// DeviceError for tensors on different devices, Error for the rest.
[[noreturn]] void rethrow_translated(const char* place, const c10::Error& error);

template <class Call>
auto with_libtorch_errors(const char* place, Call&& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    rethrow_translated(place, error);
  }
}

}  // namespace kindling
