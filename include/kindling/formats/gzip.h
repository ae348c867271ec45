#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// Reads gzip (RFC 1952) with one or several members. Throws DataError that begins with `place` for damage, a
// missing end, and bytes after the end that are not another member.
namespace kindling {

// True if the bytes begin like a gzip file.
KINDLING_API bool is_gzip(std::string_view bytes);

// Decompresses piece by piece, so that the caller limits how much memory a decompression bomb takes. Keeps a
// view of `bytes`.
class KINDLING_API GzipReader {
 public:
  GzipReader(std::string_view bytes, std::string place);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `out` with the next bytes of content; returns fewer than `size` only at the end.
  std::size_t read(char* out, std::size_t size);

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace kindling
