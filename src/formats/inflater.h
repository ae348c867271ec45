#pragma once

#include <cstddef>
#include <memory>

#include "formats/byte_source.h"

namespace kindling {

// Bytes that deflate has packed (RFC 1951), in their order.
class Inflater {
 public:
  // The packed bytes are `size` from `begin` on; the source outlives it.
  Inflater(const ByteSource& source, std::size_t begin, std::size_t size);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // The next `size` bytes; false where the packed ones are damaged or hold fewer.
  bool read(char* out, std::size_t size);
  // Whether what has been read was all, of the packed bytes, too.
  bool has_ended();

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace kindling
