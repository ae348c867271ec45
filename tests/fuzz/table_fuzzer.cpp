#include "kindling/base/error.h"
#include "table_check.h"

// The first byte selects the options.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    check_table(kindling::parse_table(text, "fuzz", table_options_of(data[0])));
  } catch (const kindling::Error&) {
    // Refused: the other good outcome.
  }
  return 0;
}
