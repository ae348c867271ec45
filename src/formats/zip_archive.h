#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/byte_source.h"

// Reads the zip archives that PyTorch writes: stored or deflated entries, zip64 if needed, nothing after the
// directory. All functions throw CheckpointError.
namespace kindling {

struct ZipEntry {
  std::string name{};
  std::size_t begin = 0, packed_size = 0;  // of its stored bytes, in the source
  std::size_t size = 0;                    // uncompressed
  std::uint32_t crc = 0;
  bool is_deflated = false;
};

// The directory has been validated: entries are within the source and do not overlap, names are distinct, and
// deflated entries are, together, at most a hundred times as large as the source.
class ZipArchive {
 public:
  enum class Deflated { refused, read };
  ZipArchive(ByteSource source, std::string place, Deflated deflated = Deflated::refused);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the order of their positions
  const ZipEntry* find(std::string_view name) const;                 // nullptr: no such entry

  // Copies all bytes of an entry and verifies their CRC-32.
  void read(const ZipEntry& entry, void* out) const;
  std::string text(const ZipEntry& entry, std::size_t max_bytes) const;  // the same as a string
  // Reads all bytes of an entry to verify them.
  void check(const ZipEntry& entry) const;
  // Copies some bytes of an entry that is not deflated, without verifying them.
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
