#include "kindling/formats/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error_kind.h"
#include "base/joined.h"
#include "formats/tensor_types.h"
#include "kindling/base/file.h"
#include "kindling/formats/gzip.h"

namespace kindling {
namespace {

// Deflate compresses at most by this ratio (zlib's technical notes: 1032 to 1), so a header that declares
// more is refused before anything is allocated.
constexpr std::size_t kMaxGzipRatio = 1032;
static_assert(sizeof(std::size_t) == 8, "the size of memory times this ratio fits in a size_t");

struct Source {
  std::function<std::size_t(char* out, std::size_t size)> read;  // less than size only at the end
  std::size_t max_bytes;                                         // an upper bound of the content
  std::string place;
  std::size_t offset = 0;

  [[noreturn]] void refuse(std::size_t at, const std::string& found, const std::string& wanted) const {
    throw DataError({.place = place + ", byte " + std::to_string(at),
                     .found = found,
                     .wanted = wanted,
                     .remedy = "check that it is an IDX file, and download or copy it again"});
  }

  void take(std::uint8_t* out, std::size_t size, const std::string& what) {
    const std::size_t got = read(reinterpret_cast<char*>(out), size);
    offset += got;
    if (got < size)
      refuse(offset, "the file ends inside " + what, std::to_string(size - got) + " bytes more");
  }
};

IdxArray take_header(Source& source) {
  std::array<std::uint8_t, 4> magic;
  source.take(magic.data(), magic.size(), "the first 4 bytes");
  if (magic[0] != 0 || magic[1] != 0)
    source.refuse(0, "this is not an IDX file", "two zero bytes at the start");
  if (tensor_type_with(&TensorTypeRow::idx, magic[2]) == nullptr) {
    source.refuse(2, "type code " + std::to_string(magic[2]) + " is unknown", "8, 9, 11, 12, 13 or 14");
  }
  if (magic[3] == 0) source.refuse(3, "the array has no dimension", "at least one");
  std::vector<std::uint8_t> sizes(4 * std::size_t{magic[3]});
  source.take(sizes.data(), sizes.size(), "the header");
  IdxArray array;
  array.type = static_cast<IdxType>(magic[2]);
  for (std::size_t i = 0; i < sizes.size(); i += 4) {
    array.shape.push_back(std::int64_t{sizes[i]} << 24 | sizes[i + 1] << 16 | sizes[i + 2] << 8 |
                          sizes[i + 3]);
  }
  return array;
}

std::size_t checked_bytes(const IdxArray& array, const Source& source) {
  const std::size_t limit = source.max_bytes - source.offset;
  std::size_t total = size_of(array.type);
  for (const std::int64_t size : array.shape) {
    const auto factor = static_cast<std::size_t>(size);
    if (factor != 0 && total > limit / factor) {
      source.refuse(4,
                    "the header declares shape " + shape_text(array.shape) +
                        ", which is more than the file can contain",
                    "at most " + std::to_string(limit) + " bytes");
    }
    total *= factor;
  }
  return total;
}

void to_host_order(std::vector<std::uint8_t>& bytes, std::size_t value_bytes) {
  if constexpr (std::endian::native == std::endian::big) return;
  if (value_bytes == 1) return;
  const auto step = static_cast<std::ptrdiff_t>(value_bytes);
  for (auto value = bytes.begin(); value != bytes.end(); value += step) std::reverse(value, value + step);
}

IdxArray parse(Source source) {
  IdxArray array = take_header(source);
  array.bytes.resize(checked_bytes(array, source));
  source.take(array.bytes.data(), array.bytes.size(), "the values of shape " + shape_text(array.shape));
  // Reads one byte more than needed, also because the checksum of a gzip file is only verified when its end
  // is reached.
  char extra;
  if (source.read(&extra, 1) != 0) {
    source.refuse(source.offset, "the file continues after the values of shape " + shape_text(array.shape),
                  "the end of the file");
  }
  to_host_order(array.bytes, size_of(array.type));
  return array;
}

}  // namespace

std::size_t size_of(IdxType type) {
  const TensorTypeRow* row = tensor_type_with(&TensorTypeRow::idx, static_cast<std::uint8_t>(type));
  if (row != nullptr) return row->bytes;
  throw DataError({.place = "IDX type", .found = "unknown", .wanted = "a value of IdxType"});
}

IdxArray parse_idx(std::string_view bytes, const std::string& place) {
  if (is_gzip(bytes)) {
    GzipReader reader(bytes, place);
    return parse({.read = [&](char* out, std::size_t size) { return reader.read(out, size); },
                  .max_bytes = bytes.size() * kMaxGzipRatio,
                  .place = place});
  }
  const std::size_t all = bytes.size();
  const auto read = [&](char* out, std::size_t size) {
    const std::size_t got = std::min(size, bytes.size());
    if (got > 0) std::memcpy(out, bytes.data(), got);
    bytes.remove_prefix(got);
    return got;
  };
  return parse({.read = read, .max_bytes = all, .place = place});
}

IdxArray read_idx(const std::filesystem::path& path) {
  constexpr std::size_t kMaxFileBytes = std::size_t{1} << 36;
  return parse_idx(with_errors_as<DataError>([&] { return read_file(path, kMaxFileBytes); }), path.string());
}

}  // namespace kindling
