#include "kindling/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <utility>

#include "kindling/base/error.h"

namespace kindling {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // zlib counts in 32 bits

uInt piece(std::size_t size) { return static_cast<uInt>(std::min(size, kPieceBytes)); }

}  // namespace

struct GzipReader::Stream {
  std::string_view bytes;
  std::string place;
  std::size_t position = 0;  // in bytes
  bool ended = false;
  z_stream inflater = {};

  [[noreturn]] void refuse(const std::string& found) const {
    throw DataError({.place = place + ", byte " + std::to_string(position) + " of the gzip file",
                     .found = found,
                     .remedy = "download or copy the file again"});
  }

  std::size_t inflate_some(char* out, std::size_t size) {
    // zlib's input is not const by default; inflate never writes to it.
    inflater.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + position));
    inflater.avail_in = piece(bytes.size() - position);
    inflater.next_out = reinterpret_cast<Bytef*>(out);
    inflater.avail_out = piece(size);
    const uInt had_in = inflater.avail_in, had_out = inflater.avail_out;
    const int result = ::inflate(&inflater, Z_NO_FLUSH);
    position += had_in - inflater.avail_in;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result == Z_BUF_ERROR) refuse("the file ends within the compressed data");
    if (result == Z_STREAM_END) {
      end_member();
    } else if (result != Z_OK) {
      refuse(std::string("the compressed data is damaged (") +
             (inflater.msg != nullptr ? inflater.msg : "unknown reason") + ")");
    }
    return had_out - inflater.avail_out;
  }

  void end_member() {
    ended = position == bytes.size();
    if (ended) return;
    if (!is_gzip(bytes.substr(position))) {
      refuse(std::to_string(bytes.size() - position) + " bytes follow the end of the compressed data");
    }
    inflateReset(&inflater);
  }
};

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

GzipReader::GzipReader(std::string_view bytes, std::string place) : stream_(std::make_unique<Stream>()) {
  stream_->bytes = bytes;
  stream_->place = std::move(place);
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream_->inflater, kGzipOnly + MAX_WBITS) != Z_OK) throw std::bad_alloc();
}

GzipReader::~GzipReader() { inflateEnd(&stream_->inflater); }

std::size_t GzipReader::read(char* out, std::size_t size) {
  std::size_t filled = 0;
  while (filled < size && !stream_->ended) filled += stream_->inflate_some(out + filled, size - filled);
  return filled;
}

}  // namespace kindling
