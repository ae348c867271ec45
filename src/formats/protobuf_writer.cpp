#include "formats/protobuf_writer.h"

#include <array>
#include <bit>

namespace kindling {
namespace {

// Kinds of fields: https://protobuf.dev/programming-guides/encoding
constexpr unsigned kVarint = 0, kEightBytes = 1, kOfLength = 2, kFourBytes = 5;

}  // namespace

void ProtobufWriter::digits(std::uint64_t bits, std::size_t size) {
  std::array<char, sizeof(bits)> bytes{};
  for (char& byte : bytes) {
    byte = static_cast<char>(bits & 0xff);
    bits >>= 8;
  }
  owned_.append(bytes.data(), size);
}

// Seven bits per byte, the low ones first; the highest bit means that more bytes follow.
void ProtobufWriter::varint(std::uint64_t value) {
  for (; value > 0x7f; value >>= 7) owned_ += static_cast<char>(value | 0x80);
  owned_ += static_cast<char>(value);
}

void ProtobufWriter::integer(int field, std::int64_t value) {
  begin(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
}

void ProtobufWriter::real(int field, float value) {
  begin(field, kFourBytes);
  digits(std::bit_cast<std::uint32_t>(value), 4);
}

void ProtobufWriter::real64(int field, double value) {
  begin(field, kEightBytes);
  digits(std::bit_cast<std::uint64_t>(value), 8);
}

void ProtobufWriter::text(int field, std::string_view bytes) {
  begin(field, kOfLength);
  varint(bytes.size());
  owned_ += bytes;
}

void ProtobufWriter::bytes(int field, std::string_view borrowed) {
  begin(field, kOfLength);
  varint(borrowed.size());
  if (borrowed.empty()) return;
  borrowed_.push_back({owned_.size(), borrowed});
  borrowed_size_ += borrowed.size();
}

void ProtobufWriter::message(int field, ProtobufWriter part) {
  begin(field, kOfLength);
  varint(part.size());
  for (const Borrowed& one : part.borrowed_) borrowed_.push_back({owned_.size() + one.at, one.bytes});
  owned_ += part.owned_;
  borrowed_size_ += part.borrowed_size_;
}

std::vector<std::string_view> ProtobufWriter::pieces() const {
  std::vector<std::string_view> views;
  std::size_t begin = 0;
  for (const Borrowed& one : borrowed_) {
    views.push_back(std::string_view(owned_).substr(begin, one.at - begin));
    views.push_back(one.bytes);
    begin = one.at;
  }
  if (begin < owned_.size()) views.push_back(std::string_view(owned_).substr(begin));
  return views;
}

}  // namespace kindling
