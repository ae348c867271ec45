#pragma once

#include <cstddef>
#include <cstdint>

// Shared by the reader and the writer of zip archives (PKWARE's APPNOTE.TXT, 4.3). All numbers are
// little-endian.
namespace kindling {

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

}  // namespace kindling
