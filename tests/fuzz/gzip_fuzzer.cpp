#include <string>

#include "kindling/base/error.h"
#include "kindling/formats/gzip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    kindling::GzipReader reader(bytes, "fuzz");
    std::string piece(4096, '\0');
    while (reader.read(piece.data(), piece.size()) == piece.size()) {
    }
  } catch (const kindling::Error&) {
    // Refused: the other good outcome.
  }
  return 0;
}
