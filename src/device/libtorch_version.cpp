#include "device/libtorch_version.h"

#include <torch/version.h>

#include <string>

#include "kindling/base/error.h"

extern "C" std::uint64_t aoti_torch_abi_version();  // of LibTorch's stable interface

namespace kindling {
namespace {

std::uint64_t packed_byte(std::uint64_t version, int index_from_top) {
  return version >> (56 - 8 * index_from_top) & 0xff;
}

}  // namespace

std::uint64_t loaded_libtorch_version() noexcept { return aoti_torch_abi_version(); }

void require_matching_libtorch(std::uint64_t loaded) {
  const std::uint64_t major = packed_byte(loaded, 0), minor = packed_byte(loaded, 1);
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR) return;
  throw Error(
      {.place = "Kindling",
       .found = "LibTorch " + std::to_string(major) + "." + std::to_string(minor) + " has been loaded",
       .wanted = "LibTorch " + std::to_string(TORCH_VERSION_MAJOR) + "." +
                 std::to_string(TORCH_VERSION_MINOR) + ", which Kindling was built with",
       .remedy =
           "check which libtorch_cpu.so `ldd` finds (LD_LIBRARY_PATH?), or rebuild Kindling with that one"});
}

}  // namespace kindling
