#include "kindling/base/error.h"
#include "kindling/formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (bytes.starts_with("PK"))
      kindling::parse_npz(bytes, "fuzz");
    else
      kindling::parse_npy(bytes, "fuzz");
  } catch (const kindling::Error&) {
    // Refused: the other good outcome.
  }
  return 0;
}
