#include "formats/protobuf_writer.h"

#include <bit>
#include <utility>

namespace kindling {
namespace {

// Kinds of fields: https://protobuf.dev/programming-guides/encoding
constexpr unsigned kVarint = 0, kEightBytes = 1, kOfLength = 2, kFourBytes = 5;

std::string little_endian_digits(std::uint64_t bits, std::size_t size) {
  std::string digits;
  for (; digits.size() < size; bits >>= 8) digits += static_cast<char>(bits & 0xff);
  return digits;
}

}  // namespace

void ProtobufWriter::append(std::string_view owned) {
  if (pieces_.empty() || !pieces_.back().borrowed.empty()) pieces_.emplace_back();
  pieces_.back().owned += owned;
  size_ += owned.size();
}

// Seven bits per byte, the low ones first; the highest bit means that more bytes follow.
void ProtobufWriter::varint(std::uint64_t value) {
  std::string digits;
  for (; value > 0x7f; value >>= 7) digits += static_cast<char>(value | 0x80);
  append(digits + static_cast<char>(value));
}

void ProtobufWriter::integer(int field, std::int64_t value) {
  begin(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
}

void ProtobufWriter::real(int field, float value) {
  begin(field, kFourBytes);
  append(little_endian_digits(std::bit_cast<std::uint32_t>(value), 4));
}

void ProtobufWriter::real64(int field, double value) {
  begin(field, kEightBytes);
  append(little_endian_digits(std::bit_cast<std::uint64_t>(value), 8));
}

void ProtobufWriter::text(int field, std::string_view bytes) {
  begin(field, kOfLength);
  varint(bytes.size());
  append(bytes);
}

void ProtobufWriter::bytes(int field, std::string_view borrowed) {
  begin(field, kOfLength);
  varint(borrowed.size());
  pieces_.back().borrowed = borrowed;
  size_ += borrowed.size();
}

void ProtobufWriter::message(int field, ProtobufWriter part) {
  begin(field, kOfLength);
  varint(part.size());
  for (Piece& piece : part.pieces_) {
    append(piece.owned);
    pieces_.back().borrowed = piece.borrowed;
    size_ += piece.borrowed.size();
  }
}

std::vector<std::string_view> ProtobufWriter::pieces() const {
  std::vector<std::string_view> views;
  for (const Piece& piece : pieces_) {
    views.emplace_back(piece.owned);
    if (!piece.borrowed.empty()) views.push_back(piece.borrowed);
  }
  return views;
}

}  // namespace kindling
