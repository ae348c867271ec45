#include "formats/hdf5/chunk_filters.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "formats/zip/inflate.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

constexpr std::size_t kChecksumBytes = 4;

[[noreturn]] void refuse_chunk(const std::string& place, const std::string& found) {
  throw DataError({.place = place,
                   .found = found,
                   .wanted = "a chunk as HDF5 has written it",
                   .remedy = "the file is damaged; copy it again"});
}

ChunkBytes inflate_chunk(const ChunkBytes& encoded, std::size_t most, const std::string& place) {
  ChunkBytes decoded(most);
  const Inflated inflated = inflate_whole(encoded.data.get(), encoded.size, decoded.data.get(), most);
  if (inflated.error == InflateError::too_large)
    refuse_chunk(place, "a chunk inflates to more than its size");
  if (inflated.error) refuse_chunk(place, "the compressed bytes of a chunk are damaged");
  decoded.size = inflated.size;
  return decoded;
}

// Builds words, which the compiler vectorizes, unlike copies of single bytes.
template <class Word>
void unshuffle_words(const char* bytes, std::size_t count, char* values) {
  for (std::size_t i = 0; i < count; ++i) {
    Word word = 0;
    for (std::size_t byte = 0; byte < sizeof(Word); ++byte) {
      const std::size_t place = std::endian::native == std::endian::little ? byte : sizeof(Word) - 1 - byte;
      word |= static_cast<Word>(static_cast<Word>(static_cast<unsigned char>(bytes[byte * count + i]))
                                << (8 * place));
    }
    std::memcpy(values + i * sizeof(Word), &word, sizeof(Word));
  }
}

// The first bytes of all values are followed by the second ones, and so on; a rest is as it was.
ChunkBytes unshuffle_chunk(ChunkBytes encoded, std::size_t value_bytes) {
  const std::size_t count = value_bytes < 2 ? 0 : encoded.size / value_bytes;
  if (count < 2) return encoded;
  ChunkBytes decoded(encoded.size);
  const char* const bytes = encoded.data.get();
  char* const values = decoded.data.get();
  switch (value_bytes) {
    case 2:
      unshuffle_words<std::uint16_t>(bytes, count, values);
      break;
    case 4:
      unshuffle_words<std::uint32_t>(bytes, count, values);
      break;
    case 8:
      unshuffle_words<std::uint64_t>(bytes, count, values);
      break;
    default:
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t byte = 0; byte < value_bytes; ++byte)
          values[i * value_bytes + byte] = bytes[byte * count + i];
  }
  const std::size_t shuffled = count * value_bytes;
  std::memcpy(values + shuffled, bytes + shuffled, encoded.size - shuffled);
  return decoded;
}

// HDF5's sum of 16-bit words, of which the first byte is the higher one.
std::uint32_t fletcher32(const char* data, std::size_t size) {
  constexpr std::size_t kWordsWithoutOverflow = 360;
  const auto byte = [data](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(data[i])}; };
  const auto reduced = [](std::uint32_t sum) { return (sum & 0xffff) + (sum >> 16); };
  std::uint32_t first = 0, second = 0;
  std::size_t at = 0;
  for (std::size_t words = size / 2; words > 0;) {
    const std::size_t some = std::min(words, kWordsWithoutOverflow);
    words -= some;
    for (std::size_t i = 0; i < some; ++i, at += 2) second += first += byte(at) << 8 | byte(at + 1);
    first = reduced(first), second = reduced(second);
  }
  if (size % 2 != 0) {
    second += first += byte(at) << 8;
    first = reduced(first), second = reduced(second);
  }
  return reduced(second) << 16 | reduced(first);
}

ChunkBytes without_checksum(ChunkBytes encoded, const std::string& place) {
  if (encoded.size < kChecksumBytes) refuse_chunk(place, "the chunk ends before its checksum");
  encoded.size -= kChecksumBytes;
  std::uint32_t stored = 0;
  for (std::size_t i = 0; i < kChecksumBytes; ++i)
    stored |= std::uint32_t{static_cast<unsigned char>(encoded.data[encoded.size + i])} << (8 * i);
  // HDF5 1.6.2 has written the bytes of each half in the other order.
  const std::uint32_t of_old = (stored & 0x00ff00ff) << 8 | (stored >> 8 & 0x00ff00ff);
  const std::uint32_t actual = fletcher32(encoded.data.get(), encoded.size);
  if (actual != stored && actual != of_old) refuse_chunk(place, "a chunk does not have its checksum");
  return encoded;
}

}  // namespace

ChunkBytes decode_chunk(ChunkBytes encoded, std::span<const ChunkFilter> filters, std::uint32_t skipped,
                        std::size_t size, const std::string& place) {
  // Checksums of the filters before a deflate are part of what it has compressed.
  std::size_t most = size + kChecksumBytes * filters.size();
  for (std::size_t i = filters.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    switch (filters[i].kind) {
      case ChunkFilter::Kind::deflate:
        encoded = inflate_chunk(encoded, most, place);
        break;
      case ChunkFilter::Kind::shuffle:
        encoded = unshuffle_chunk(std::move(encoded), filters[i].value_bytes);
        break;
      case ChunkFilter::Kind::fletcher32:
        encoded = without_checksum(std::move(encoded), place);
        break;
    }
  }
  if (encoded.size != size)
    refuse_chunk(
        place, "a chunk has " + std::to_string(encoded.size) + " bytes in place of " + std::to_string(size));
  return encoded;
}

}  // namespace kindling
