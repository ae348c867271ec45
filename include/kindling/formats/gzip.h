#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// Reading gzip (RFC 1952), one member or several in a row. Throws DataError that begins with `place`, on
// damage, a missing end, and bytes behind the end that are no further member.
namespace kindling {

// Whether the bytes begin as a gzip file does.
KINDLING_API bool is_gzip(std::string_view bytes);

// Reads piece by piece: who reads decides how much memory a bomb may take. Keeps a view of `bytes`.
class KINDLING_API GzipReader {
 public:
  GzipReader(std::string_view bytes, std::string place);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `out` with the next bytes of content, fewer than `size` only at the end of it.
  std::size_t read(char* out, std::size_t size);

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace kindling
