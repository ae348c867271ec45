#include "formats/zip/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

// Inflates deflated bytes (RFC 1951) in order.
class Inflater {
 public:
  // The compressed bytes are `size` from `begin` on; the source must outlive it.
  Inflater(const ByteSource& source, std::size_t begin, std::size_t size);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Reads the next `size` bytes; returns false if the compressed ones are damaged or contain fewer.
  bool read(char* out, std::size_t size);
  // True if everything has been read, including all compressed bytes.
  bool has_ended();

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

constexpr std::size_t kPackedPieceBytes = std::size_t{1} << 16;
constexpr std::size_t kInflatedPieceBytes = std::size_t{1} << 30;  // zlib counts in 32 bits

struct Inflater::Stream {
  const ByteSource& source;
  std::size_t next, left;  // of the compressed bytes that have not been read
  std::vector<char> packed = std::vector<char>(kPackedPieceBytes);
  z_stream inflater = {};
  bool ended = false;

  void refill() {
    const std::size_t size = std::min(left, packed.size());
    source.read(next, packed.data(), size);
    next += size;
    left -= size;
    inflater.next_in = reinterpret_cast<Bytef*>(packed.data());
    inflater.avail_in = static_cast<uInt>(size);
  }

  // Calls zlib once and returns the number of bytes; nothing for damaged ones and at the end.
  std::size_t inflate_some(char* out, std::size_t size) {
    if (inflater.avail_in == 0) refill();
    inflater.next_out = reinterpret_cast<Bytef*>(out);
    inflater.avail_out = static_cast<uInt>(std::min(size, kInflatedPieceBytes));
    const uInt had_in = inflater.avail_in, had_out = inflater.avail_out;
    const int result = ::inflate(&inflater, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    ended = result == Z_STREAM_END;
    const bool moved = inflater.avail_in < had_in || inflater.avail_out < had_out;
    failed = result != Z_OK && !ended && !(result == Z_BUF_ERROR && moved);
    return had_out - inflater.avail_out;
  }

  bool failed = false;
};

Inflater::Inflater(const ByteSource& source, std::size_t begin, std::size_t size)
    : stream_(new Stream{source, begin, size}) {
  if (inflateInit2(&stream_->inflater, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
}

Inflater::~Inflater() { inflateEnd(&stream_->inflater); }

bool Inflater::read(char* out, std::size_t size) {
  while (size > 0) {
    if (stream_->ended) return false;
    const std::size_t filled = stream_->inflate_some(out, size);
    if (stream_->failed) return false;
    out += filled;
    size -= filled;
  }
  return true;
}

bool Inflater::has_ended() {
  char none = 0;
  while (!stream_->ended) {  // the end marker may still be unread
    if (stream_->inflate_some(&none, 1) > 0 || stream_->failed) return false;
  }
  return stream_->left == 0 && stream_->inflater.avail_in == 0;
}

constexpr std::size_t kMaxDirectoryBytes = std::size_t{1} << 26;
constexpr std::size_t kCrcPieceBytes = std::size_t{1} << 18;
constexpr std::uint64_t kDeflateMethod = 8;
constexpr std::size_t kMaxInflation = 100;   // for the whole archive
constexpr std::size_t kDeflateRatio = 1032;  // deflate's own limit (zlib's technical notes)

[[noreturn]] void refuse_zip(const std::string& where, const std::string& found,
                             const std::string& wanted = "") {
  throw CheckpointError({.place = where,
                         .found = found,
                         .wanted = wanted,
                         .remedy = "the file is damaged: copy it again, or "
                                   "save it again"});
}

// Reads consecutive numbers; running out of bytes is an error.
class ZipFields {
 public:
  ZipFields(std::string_view bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view piece = text(size);
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(piece[i]);
    return value;
  }
  std::string_view text(std::size_t size) {
    if (size > bytes_.size()) refuse_zip(where_, "the zip directory is incomplete");
    const std::string_view piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }
  void expect(std::uint64_t value, std::size_t size, const char* what) {
    if (number(size) != value) refuse_zip(where_, std::string(what) + " is invalid");
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  std::string where_;
};

std::string piece_of(const ByteSource& source, std::size_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  source.read(offset, bytes.data(), size);
  return bytes;
}

// The position of the directory.
struct ZipDirectory {
  std::uint64_t entries = 0, begin = 0, size = 0;
  std::size_t end = 0;  // where it must end
};

// The record of large archives, which PyTorch always writes, before its locator at `locator`.
ZipDirectory end64_directory(const ByteSource& source, std::size_t locator, const std::string& place) {
  const std::string locator_bytes = piece_of(source, locator, kLocatorBytes);
  ZipFields fields(locator_bytes, place);
  fields.expect(kLocatorSignature, 4, "the zip64 locator");
  fields.expect(0, 4, "the zip64 locator's disk");
  const std::uint64_t begin = fields.number(8);
  fields.expect(1, 4, "the number of the zip archive's disks");
  if (locator < kEnd64Bytes || begin != locator - kEnd64Bytes)
    refuse_zip(place, "the zip64 locator points to a wrong position");
  const std::string bytes = piece_of(source, begin, kEnd64Bytes);
  ZipFields end(bytes, place);
  end.expect(kEnd64Signature, 4, "the zip64 record");
  end.expect(kEnd64Bytes - 12, 8, "the zip64 record's size");
  end.text(4);  // versions
  end.expect(0, 8, "the zip64 record's disk");
  ZipDirectory directory{.entries = end.number(8), .end = begin};
  end.expect(directory.entries, 8, "the number of entries");
  directory.size = end.number(8);
  directory.begin = end.number(8);
  return directory;
}

ZipDirectory find_directory(const ByteSource& source, const std::string& place) {
  if (source.size < kEndBytes) refuse_zip(place, "the file is too short for a zip archive");
  const std::size_t at = source.size - kEndBytes;
  const std::string bytes = piece_of(source, at, kEndBytes);
  ZipFields end(bytes, place + ", byte " + std::to_string(at));
  end.expect(kEndSignature, 4, "the end of the zip archive");
  end.expect(0, 4, "the zip archive's disk");
  ZipDirectory directory{.entries = end.number(2), .end = at};
  end.expect(directory.entries, 2, "the number of entries");
  directory.size = end.number(4);
  directory.begin = end.number(4);
  end.expect(0, 2, "the comment's length");
  const bool has_locator =
      at >= kLocatorBytes &&
      ZipFields(piece_of(source, at - kLocatorBytes, 4), place).number(4) == kLocatorSignature;
  if (!has_locator) return directory;
  const ZipDirectory large = end64_directory(source, at - kLocatorBytes, place);
  const auto differs = [](std::uint64_t small, std::uint64_t in_64, std::uint64_t value) {
    return small != in_64 && small != value;
  };
  if (differs(directory.entries, kCountIn64, large.entries) || differs(directory.size, kIn64, large.size) ||
      differs(directory.begin, kIn64, large.begin))
    refuse_zip(place, "the two end records of the zip archive differ");
  return large;
}

// The directory's description of an entry: `begin` is still that of its local header.
struct ListedEntry {
  ZipEntry entry{};
  std::uint64_t flags = 0;
  std::size_t header = 0;  // position of its local header
};

// Contains exactly the numbers that did not fit, in this order.
void take_zip64(ZipFields extra, const std::string& where, std::uint64_t& size, std::uint64_t& packed,
                std::uint64_t& header) {
  while (!extra.empty()) {
    const std::uint64_t kind = extra.number(2);
    ZipFields field(extra.text(extra.number(2)), where);
    if (kind != kZip64Field) continue;
    for (std::uint64_t* value : {&size, &packed, &header})
      if (*value == kIn64) *value = field.number(8);
  }
}

void check_zip_name(std::string_view name, const std::string& where) {
  const bool is_hostile = name.empty() || name.starts_with('/') || name.find('\\') != name.npos ||
                          name.find('\0') != name.npos || name == ".." || name.starts_with("../") ||
                          name.ends_with("/..") || name.find("/../") != name.npos;
  if (is_hostile)
    refuse_zip(where, "the entry's name " + json_string(name.substr(0, 100)) + " points outside the archive");
}

ListedEntry listed_entry(ZipFields& fields, const std::string& where) {
  fields.expect(kDirectorySignature, 4, "an entry's signature");
  fields.text(4);  // versions
  ListedEntry listed{.flags = fields.number(2)};
  const std::uint64_t method = fields.number(2);
  fields.text(4);  // time
  listed.entry.crc = static_cast<std::uint32_t>(fields.number(4));
  std::uint64_t packed = fields.number(4), size = fields.number(4);
  const std::size_t name_bytes = fields.number(2), extra_bytes = fields.number(2);
  fields.expect(0, 2, "an entry's comment");
  fields.expect(0, 2, "an entry's disk");
  fields.text(6);  // attributes
  std::uint64_t header = fields.number(4);
  listed.entry.name = fields.text(name_bytes);
  take_zip64(ZipFields(fields.text(extra_bytes), where), where, size, packed, header);
  check_zip_name(listed.entry.name, where);
  const std::string entry_place = where + ", entry " + json_string(listed.entry.name.substr(0, 100));
  listed.entry.is_deflated = method == kDeflateMethod;
  if (method != 0 && method != kDeflateMethod)
    refuse_zip(entry_place, "it is compressed by method " + std::to_string(method),
               "deflate, or no compression");
  const std::uint64_t level_flags = listed.entry.is_deflated ? 0x6 : 0;  // the compression level
  if ((listed.flags & ~(std::uint64_t{kUtf8Flag | kSizesBehindFlag} | level_flags)) != 0)
    refuse_zip(entry_place, "it is encrypted or has unsupported flags");
  if (packed != size && !listed.entry.is_deflated) refuse_zip(entry_place, "its two sizes differ");
  listed.entry.size = size;
  listed.entry.packed_size = packed;
  listed.header = header;
  return listed;
}

// Checks that the local header agrees, and finds the start of the bytes.
void find_bytes(const ByteSource& source, ListedEntry& listed, std::size_t end, const std::string& place) {
  ZipEntry& entry = listed.entry;
  const std::string where = place + ", entry " + json_string(entry.name.substr(0, 100));
  const std::size_t fixed = kLocalBytes + entry.name.size();
  if (listed.header > end || fixed > end - listed.header) refuse_zip(where, "it starts outside the archive");
  const std::string bytes = piece_of(source, listed.header, fixed);
  ZipFields local(bytes, where);
  local.expect(kLocalSignature, 4, "its local header");
  local.text(2);  // version
  local.expect(listed.flags, 2, "its local header's flags");
  local.expect(entry.is_deflated ? kDeflateMethod : 0, 2, "its local header's method");
  local.text(16);  // time, CRC, sizes: the directory's are used, as by other readers
  local.expect(entry.name.size(), 2, "the length of its name");
  const std::size_t extra_bytes = local.number(2);
  if (local.text(entry.name.size()) != entry.name) refuse_zip(where, "its local header has a different name");
  entry.begin = listed.header + fixed + extra_bytes;
  if (entry.begin > end || entry.packed_size > end - entry.begin)
    refuse_zip(where, "it ends outside the archive");
}

void check_zip_overlaps(std::span<const ListedEntry> sorted, const std::string& place) {
  std::unordered_set<std::string_view> names;
  std::size_t reached = 0;
  for (const auto& [entry, flags, header] : sorted) {
    const std::string where = place + ", entry " + json_string(entry.name.substr(0, 100));
    if (header < reached) refuse_zip(where, "it overlaps another entry");
    if (!names.insert(entry.name).second) refuse_zip(where, "its name appears twice");
    reached = entry.begin + entry.packed_size;
  }
}

void check_deflate_ratio(std::span<const ListedEntry> entries, const std::string& place) {
  for (const auto& [entry, flags, header] : entries)
    if (entry.is_deflated && entry.size / kDeflateRatio > entry.packed_size)
      refuse_zip(place + ", entry " + json_string(entry.name.substr(0, 100)),
                 "it has " + std::to_string(entry.size) + " bytes, and " + std::to_string(entry.packed_size) +
                     " compressed ones",
                 "at most " + std::to_string(kDeflateRatio) + " times as many");
}

void check_inflation(std::span<const ListedEntry> entries, std::size_t source_bytes,
                     const std::string& place) {
  std::size_t left = source_bytes * kMaxInflation;
  for (const ListedEntry& listed : entries) {
    if (!listed.entry.is_deflated) continue;
    if (listed.entry.size > left)
      refuse_zip(place, "its entries are together more than a hundred times as large as the file");
    left -= listed.entry.size;
  }
}

}  // namespace

ByteSource source_of(const std::filesystem::path& path) {
  const auto file = std::make_shared<const InputFile>(path);
  return {file->size(),
          [file](std::size_t offset, void* out, std::size_t size) { file->read(offset, out, size); }};
}

ByteSource source_of_bytes(std::string bytes) {
  const auto held = std::make_shared<const std::string>(std::move(bytes));
  return {held->size(), [held](std::size_t offset, void* out, std::size_t size) {
            if (size > 0) std::memcpy(out, held->data() + offset, size);
          }};
}

ZipArchive::ZipArchive(ByteSource source, std::string place, Inflation inflation)
    : source_(std::move(source)), place_(std::move(place)) {
  const ZipDirectory directory = find_directory(source_, place_);
  if (directory.begin > directory.end || directory.size != directory.end - directory.begin)
    refuse_zip(place_, "the zip directory does not end where the archive does");
  if (directory.size > kMaxDirectoryBytes) refuse_zip(place_, "the zip directory is too large");
  if (directory.entries > directory.size / kDirectoryBytes)
    refuse_zip(place_, "the zip directory is too short for its entries");
  const std::string bytes = piece_of(source_, directory.begin, directory.size);
  ZipFields fields(bytes, place_);
  std::vector<ListedEntry> listed;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    listed.push_back(listed_entry(fields, place_));
    find_bytes(source_, listed.back(), directory.begin, place_);
  }
  if (!fields.empty()) refuse_zip(place_, "the zip directory continues after its entries");
  std::ranges::stable_sort(listed, {}, &ListedEntry::header);
  check_zip_overlaps(listed, place_);
  check_deflate_ratio(listed, place_);
  if (inflation == Inflation::hundredfold) check_inflation(listed, source_.size, place_);
  for (ListedEntry& one : listed) entries_.push_back(std::move(one.entry));
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &ZipEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

// Reads the bytes piece by piece to where `place_of(bytes read so far)` says.
template <class PlaceOf>
void ZipArchive::read_checked(const ZipEntry& entry, PlaceOf place_of) const {
  const std::string where = place_ + ", entry " + json_string(entry.name.substr(0, 100));
  std::optional<Inflater> inflater;
  if (entry.is_deflated) inflater.emplace(source_, entry.begin, entry.packed_size);
  uLong crc = 0;
  for (std::size_t done = 0; done < entry.size; done += std::min(kCrcPieceBytes, entry.size - done)) {
    const std::size_t size = std::min(kCrcPieceBytes, entry.size - done);
    char* const out = place_of(done);
    if (!inflater)
      source_.read(entry.begin + done, out, size);
    else if (!inflater->read(out, size))
      refuse_zip(where, "its compressed bytes are damaged");
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(out), size);
  }
  if (inflater && !inflater->has_ended())
    refuse_zip(where, "it contains more bytes than the archive declares");
  if (crc != entry.crc) refuse_zip(where, "its bytes do not match the CRC-32 in the archive");
}

void ZipArchive::read(const ZipEntry& entry, void* out) const {
  read_checked(entry, [&](std::size_t done) { return static_cast<char*>(out) + done; });
}

std::string ZipArchive::text(const ZipEntry& entry, std::size_t max_bytes) const {
  if (entry.size > max_bytes)
    refuse_zip(place_ + ", entry " + json_string(entry.name.substr(0, 100)),
               "it has " + std::to_string(entry.size) + " bytes", "at most " + std::to_string(max_bytes));
  std::string bytes(entry.size, '\0');
  read(entry, bytes.data());
  return bytes;
}

void ZipArchive::check(const ZipEntry& entry) const {
  std::string piece(std::min(kCrcPieceBytes, entry.size), '\0');
  read_checked(entry, [&](std::size_t) { return piece.data(); });
}

}  // namespace kindling
