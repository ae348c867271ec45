#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// A message in protobuf's wire format, field by field. Fields may come in any order, and a repeated one as
// often as it has values.
class ProtobufWriter {
 public:
  void integer(int field, std::int64_t value);
  void real(int field, float value);
  void text(int field, std::string_view bytes);  // copied
  // Borrowed until the message is written: weights need no memory of their own.
  void bytes(int field, std::string_view borrowed);
  void message(int field, ProtobufWriter part);

  std::size_t size() const noexcept { return size_; }  // in bytes
  // All of the message, one after the other; they live as long as this does and nothing is added.
  std::vector<std::string_view> pieces() const;

 private:
  // What is its own, and what stands behind it.
  struct Piece {
    std::string owned;
    std::string_view borrowed;
  };
  void append(std::string_view owned);
  void varint(std::uint64_t value);
  void begin(int field, unsigned kind) { varint(static_cast<std::uint64_t>(field) << 3 | kind); }

  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

}  // namespace kindling
