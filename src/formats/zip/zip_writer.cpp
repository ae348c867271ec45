#include "formats/zip/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "formats/zip/zip_archive.h"

namespace kindling {
namespace {

constexpr std::size_t kZipAlignment = 64;        // PyTorch's, for mapping values into memory
constexpr std::uint64_t kZipVersion = 45;        // the first with zip64
constexpr std::uint64_t kDateOf1980 = 0x21;      // January 1st, so that the bytes do not depend on the time
constexpr std::uint16_t kPaddingField = 0x4246;  // "FB", as PyTorch names it

std::string zip_number(std::uint64_t number, std::size_t size) {
  std::string bytes;
  for (; size > 0; --size, number >>= 8) bytes += static_cast<char>(number & 0xff);
  return bytes;
}

// Returns as much of a number as its original field can hold.
std::string zip_number_32(std::uint64_t number) {
  return zip_number(std::min<std::uint64_t>(number, kIn64), 4);
}

// Collects the numbers that do not fit.
std::string zip64_field(std::initializer_list<std::uint64_t> numbers) {
  std::string large;
  for (const std::uint64_t number : numbers)
    if (number >= kIn64) large += zip_number(number, 8);
  return large.empty() ? "" : zip_number(kZip64Field, 2) + zip_number(large.size(), 2) + large;
}

// Returns an extra field after `end` bytes of the archive that aligns the next byte.
std::string padding_field(std::uint64_t end) {
  const std::size_t size = (2 * kZipAlignment - (end + 4) % kZipAlignment) % kZipAlignment;
  return zip_number(kPaddingField, 2) + zip_number(size, 2) + std::string(size, 'Z');
}

// For local headers and for the directory alike.
std::string entry_fields(std::uint64_t crc, std::uint64_t size, std::size_t name_bytes,
                         std::size_t extra_bytes) {
  return zip_number(kZipVersion, 2) + zip_number(kUtf8Flag, 2) + zip_number(0, 4) +
         zip_number(kDateOf1980, 2) + zip_number(crc, 4) + zip_number_32(size) + zip_number_32(size) +
         zip_number(name_bytes, 2) + zip_number(extra_bytes, 2);
}

}  // namespace

void ZipWriter::append(std::string bytes) {
  reached_ += bytes.size();
  pieces_.push_back(owned_bytes_.emplace_back(std::move(bytes)));
}

void ZipWriter::add(std::string_view name, std::string_view bytes) {
  const std::uint64_t header = reached_, size = bytes.size();
  const std::uint64_t crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  std::string extra = zip64_field({size, size});
  extra += padding_field(header + kLocalBytes + name.size() + extra.size());
  append(zip_number(kLocalSignature, 4) + entry_fields(crc, size, name.size(), extra.size()) +
         std::string(name) + extra);
  if (!bytes.empty()) pieces_.push_back(bytes);
  reached_ += size;
  extra = zip64_field({size, size, header});
  directory_ += zip_number(kDirectorySignature, 4) + zip_number(kZipVersion, 2) +
                entry_fields(crc, size, name.size(), extra.size()) + zip_number(0, 10) +
                zip_number_32(header) + std::string(name) + extra;
  ++entries_;
}

std::vector<std::string_view> ZipWriter::finish() {
  const std::uint64_t begin = reached_, size = directory_.size(), end = begin + size;
  append(std::move(directory_));
  append(zip_number(kEnd64Signature, 4) + zip_number(kEnd64Bytes - 12, 8) + zip_number(kZipVersion, 2) +
         zip_number(kZipVersion, 2) + zip_number(0, 8) + zip_number(entries_, 8) + zip_number(entries_, 8) +
         zip_number(size, 8) + zip_number(begin, 8) + zip_number(kLocatorSignature, 4) + zip_number(0, 4) +
         zip_number(end, 8) + zip_number(1, 4));
  const std::uint64_t count = std::min<std::uint64_t>(entries_, kCountIn64);
  append(zip_number(kEndSignature, 4) + zip_number(0, 4) + zip_number(count, 2) + zip_number(count, 2) +
         zip_number_32(size) + zip_number_32(begin) + zip_number(0, 2));
  return pieces_;
}

}  // namespace kindling
