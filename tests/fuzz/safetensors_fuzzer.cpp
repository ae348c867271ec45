#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    kindling::parse_safetensors(bytes, "fuzz");
  } catch (const kindling::Error&) {
    // Refused: the other good outcome.
  }
  return 0;
}
