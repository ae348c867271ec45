#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// Builds a message in protobuf's wire format, field by field. Fields may come in any order; a repeated field
// is added once per value.
class ProtobufWriter {
 public:
  ProtobufWriter() { owned_.reserve(kUsualBytes); }

  void integer(int field, std::int64_t value);
  void real(int field, float value);
  void real64(int field, double value);
  void text(int field, std::string_view bytes);  // copied
  // Borrowed until the message is written, so that weights are not copied.
  void bytes(int field, std::string_view borrowed);
  void message(int field, ProtobufWriter part);

  std::size_t size() const noexcept { return owned_.size() + borrowed_size_; }  // in bytes
  // Returns the message in consecutive pieces. They are valid as long as the writer exists and nothing is
  // added.
  std::vector<std::string_view> pieces() const;

 private:
  // Borrowed bytes and their position among the copied ones.
  struct Borrowed {
    std::size_t at;
    std::string_view bytes;
  };
  static constexpr std::size_t kUsualBytes = 100;  // of an event with two values

  void digits(std::uint64_t bits, std::size_t size);
  void varint(std::uint64_t value);
  void begin(int field, unsigned kind) { varint(static_cast<std::uint64_t>(field) << 3 | kind); }

  std::string owned_;  // without borrowed bytes, a message is one string: records are written often
  std::vector<Borrowed> borrowed_;
  std::size_t borrowed_size_ = 0;
};

}  // namespace kindling
