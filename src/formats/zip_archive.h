#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/byte_source.h"

// The zip archives that PyTorch writes: entries that are stored as they are or deflated, zip64 where it is
// needed, nothing behind the directory. All throw CheckpointError.
namespace kindling {

struct ZipEntry {
  std::string name{};
  std::size_t begin = 0, packed_size = 0;  // of its bytes, in the source
  std::size_t size = 0;                    // of what they hold
  std::uint32_t crc = 0;
  bool is_deflated = false;
};

// The directory has been read and checked: entries lie inside the source and do not overlap, names differ,
// and deflated ones hold, together, at most a hundred times the source's size.
class ZipArchive {
 public:
  enum class Deflated { refused, read };
  ZipArchive(ByteSource source, std::string place, Deflated deflated = Deflated::refused);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the order of their bytes
  const ZipEntry* find(std::string_view name) const;                 // nullptr: no such entry

  // Copies all bytes of an entry and checks them against its CRC-32.
  void read(const ZipEntry& entry, void* out) const;
  std::string text(const ZipEntry& entry, std::size_t max_bytes) const;  // the same as a text
  // Reads all bytes of an entry to check them.
  void check(const ZipEntry& entry) const;
  // Copies some of the bytes of an entry that is not deflated, unchecked.
  void read_piece(const ZipEntry& entry, std::size_t offset, void* out, std::size_t size) const {
    source_.read(entry.begin + offset, out, size);
  }

 private:
  template <class PlaceOf>
  void read_checked(const ZipEntry& entry, PlaceOf place_of) const;

  ByteSource source_;
  std::string place_;
  std::vector<ZipEntry> entries_;
};

}  // namespace kindling
