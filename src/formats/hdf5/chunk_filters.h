#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace kindling {

// Bytes without initial values.
struct ChunkBytes {
  ChunkBytes() = default;
  explicit ChunkBytes(std::size_t count) : data(std::make_unique_for_overwrite<char[]>(count)), size(count) {}

  std::unique_ptr<char[]> data{};
  std::size_t size = 0;
};

// A step in which HDF5 has encoded chunks.
struct ChunkFilter {
  enum class Kind : std::uint8_t { deflate, shuffle, fletcher32 };
  Kind kind = Kind::deflate;
  std::size_t value_bytes = 0;  // of a shuffle
};

// Undoes the filters of a chunk, the last one first, except for those whose bit is set in `skipped`. Throws
// DataError with `place` unless the result has `size` bytes, and for a wrong checksum.
ChunkBytes decode_chunk(ChunkBytes encoded, std::span<const ChunkFilter> filters, std::uint32_t skipped,
                        std::size_t size, const std::string& place);

}  // namespace kindling
