#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// Reads the zip archives that PyTorch writes: stored or deflated entries, zip64 if needed, nothing after the
// directory. All functions throw CheckpointError.
namespace kindling {

// The layout, shared with ZipWriter (PKWARE's APPNOTE.TXT, 4.3). All numbers are little-endian.
inline constexpr std::uint32_t kLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kDirectorySignature = 0x02014b50;
inline constexpr std::uint32_t kEndSignature = 0x06054b50;
inline constexpr std::uint32_t kEnd64Signature = 0x06064b50;
inline constexpr std::uint32_t kLocatorSignature = 0x07064b50;

inline constexpr std::size_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                             kLocatorBytes = 20;

inline constexpr std::uint32_t kIn64 = 0xffffffff;      // replaces a number that is in the zip64 field
inline constexpr std::uint16_t kCountIn64 = 0xffff;     // the same for counts
inline constexpr std::uint16_t kZip64Field = 0x0001;    // the ID of that extra field
inline constexpr std::uint16_t kUtf8Flag = 0x0800;      // names are UTF-8
inline constexpr std::uint16_t kSizesBehindFlag = 0x8;  // the local header has neither sizes nor CRC

// Bytes of a file or in memory that are read in pieces.
struct ByteSource {
  std::size_t size = 0;
  std::function<void(std::size_t offset, void* out, std::size_t size)> read{};  // must be within `size`
};

ByteSource source_of(const std::filesystem::path& path);
ByteSource source_of_bytes(std::string bytes);

struct ZipEntry {
  std::string name{};
  std::size_t begin = 0, packed_size = 0;  // of its stored bytes, in the source
  std::size_t size = 0;                    // uncompressed
  std::uint32_t crc = 0;
  bool is_deflated = false;
};

// The directory has been validated: entries are within the source and do not overlap, and names are distinct.
class ZipArchive {
 public:
  // How large deflated entries may be: together a hundred times the source, or each as large as deflate can
  // make it of its bytes. The former is a limit for reading everything; with the latter, the caller checks
  // what it reads against the memory.
  enum class Inflation { hundredfold, of_deflate };
  ZipArchive(ByteSource source, std::string place, Inflation inflation = Inflation::hundredfold);

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
