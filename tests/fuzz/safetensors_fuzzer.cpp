// Any bytes as a safetensors file: as they are, with a header checksum made right so that what lies behind it
// is reached, and as values and texts of a file of our own, in which any flipped bit has to be found.

#include <algorithm>
#include <cstdlib>
#include <string>

#include "formats/safetensors/safetensors_layout.h"
#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"

namespace {

using namespace kindling;

bool parses(std::string_view bytes) {
  try {
    parse_safetensors(bytes, "fuzz");
    return true;
  } catch (const Error&) {
    return false;  // refused: the other good outcome
  }
}

void parse_with_right_header_checksum(std::string bytes) {
  const std::string_view header = std::string_view(bytes).substr(std::min(bytes.size(), kLengthBytes));
  if (!header.starts_with(kCheckedHeaderStart)) return;
  try {
    const std::string whole(header.substr(0, checked_header_bytes(bytes, bytes.size(), "fuzz")));
    if (whole.size() < kCheckedHeaderStart.size() + kChecksumDigits) return;
    bytes.replace(kLengthBytes + kCheckedHeaderStart.size(), kChecksumDigits, checksum_of_header(whole));
  } catch (const Error&) {
    return;
  }
  parses(bytes);
}

void flip_a_bit_of_our_own(std::string_view data) {
  if (data.size() < 4) return;
  const std::size_t place = static_cast<unsigned char>(data[0]) * 256u + static_cast<unsigned char>(data[1]);
  const std::string_view values = data.substr(2);
  const TensorToWrite tensor = {
      "t", TensorType::uint8, {static_cast<std::int64_t>(values.size())}, values.data(), values.size()};
  std::string bytes;
  try {
    bytes = serialize_safetensors({&tensor, 1}, {{"text", std::string(values)}}, WithChecksums::yes);
  } catch (const Error&) {
    return;  // the text is not UTF-8
  }
  if (!parses(bytes)) std::abort();
  char& byte = bytes[place % bytes.size()];
  byte = static_cast<char>(byte ^ 1 << place % 7);
  if (parses(bytes)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  parses(bytes);
  parse_with_right_header_checksum(std::string(bytes));
  flip_a_bit_of_our_own(bytes);
  return 0;
}
