#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// The IDX format of MNIST: 0, 0, type, rank, the sizes as big-endian 32-bit numbers, the values big-endian.
namespace kindling {

// The values are the format's type codes.
enum class IdxType : std::uint8_t {
  uint8 = 0x08,
  int8 = 0x09,
  int16 = 0x0b,
  int32 = 0x0c,
  float32 = 0x0d,
  float64 = 0x0e,
};

// A file's contents.
struct IdxArray {
  IdxType type = IdxType::uint8;
  std::vector<std::int64_t> shape;  // rank 1 or more
  std::vector<std::uint8_t> bytes;  // the values in row-major order, in this machine's byte order
};

KINDLING_API std::size_t size_of(IdxType type);  // bytes of one value

// Both read plain and gzip content, distinguished by its first bytes, and throw DataError with place and byte
// offset (of the unpacked content). They never allocate more than the header promises, nor more than the
// input can hold.
KINDLING_API IdxArray read_idx(const std::filesystem::path& path);
KINDLING_API IdxArray parse_idx(std::string_view bytes, const std::string& place);

}  // namespace kindling
