#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// The zip archives that PyTorch writes: entries that are stored as they are, zip64 where it is needed,
// nothing behind the directory. All throw CheckpointError.
namespace kindling {

// Bytes that are read in pieces, of a file or in memory.
struct ByteSource {
  std::size_t size = 0;
  std::function<void(std::size_t offset, void* out, std::size_t size)> read{};  // inside the size
};

struct ZipEntry {
  std::string name{};
  std::size_t begin = 0, size = 0;  // of its bytes, in the source
  std::uint32_t crc = 0;
};

// The directory has been read and checked: entries lie inside the source and do not overlap, names differ.
class ZipArchive {
 public:
  ZipArchive(ByteSource source, std::string place);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the order of their bytes
  const ZipEntry* find(std::string_view name) const;                 // nullptr: no such entry

  // Copies all bytes of an entry and checks them against its CRC-32.
  void read(const ZipEntry& entry, void* out) const;
  std::string text(const ZipEntry& entry, std::size_t max_bytes) const;  // the same as a text
  // Reads all bytes of an entry to check them.
  void check(const ZipEntry& entry) const;
  // Copies some of its bytes, unchecked.
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
