#include "formats/inflater.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <vector>

namespace kindling {
namespace {

constexpr std::size_t kPackedPieceBytes = std::size_t{1} << 16;
constexpr std::size_t kInflatedPieceBytes = std::size_t{1} << 30;  // zlib counts in 32 bits

}  // namespace

struct Inflater::Stream {
  const ByteSource& source;
  std::size_t next, left;  // of the packed bytes that have not been read
  std::vector<char> packed = std::vector<char>(kPackedPieceBytes);
  z_stream inflater = {};
  bool ended = false;

  void refill() {
    const std::size_t size = std::min(left, packed.size());
    source.read(next, packed.data(), size);
    next += size;
    left -= size;
    inflater.next_in = reinterpret_cast<Bytef*>(packed.data());
    inflater.avail_in = static_cast<uInt>(size);
  }

  // One call of zlib: how many bytes it gave; nothing for damaged ones and when there are no more.
  std::size_t inflate_some(char* out, std::size_t size) {
    if (inflater.avail_in == 0) refill();
    inflater.next_out = reinterpret_cast<Bytef*>(out);
    inflater.avail_out = static_cast<uInt>(std::min(size, kInflatedPieceBytes));
    const uInt had_in = inflater.avail_in, had_out = inflater.avail_out;
    const int result = ::inflate(&inflater, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    ended = result == Z_STREAM_END;
    const bool moved = inflater.avail_in < had_in || inflater.avail_out < had_out;
    failed = result != Z_OK && !ended && !(result == Z_BUF_ERROR && moved);
    return had_out - inflater.avail_out;
  }

  bool failed = false;
};

Inflater::Inflater(const ByteSource& source, std::size_t begin, std::size_t size)
    : stream_(new Stream{source, begin, size}) {
  if (inflateInit2(&stream_->inflater, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
}

Inflater::~Inflater() { inflateEnd(&stream_->inflater); }

bool Inflater::read(char* out, std::size_t size) {
  while (size > 0) {
    if (stream_->ended) return false;
    const std::size_t filled = stream_->inflate_some(out, size);
    if (stream_->failed) return false;
    out += filled;
    size -= filled;
  }
  return true;
}

bool Inflater::has_ended() {
  char none = 0;
  while (!stream_->ended) {  // the mark of the end may still be unread
    if (stream_->inflate_some(&none, 1) > 0 || stream_->failed) return false;
  }
  return stream_->left == 0 && stream_->inflater.avail_in == 0;
}

}  // namespace kindling
