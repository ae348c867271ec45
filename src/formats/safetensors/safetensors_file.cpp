#include <algorithm>

#include "base/error_kind.h"
#include "formats/safetensors/safetensors_checksums.h"
#include "formats/safetensors/safetensors_layout.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

// Small enough that a piece is still in the processor's cache when it is checksummed.
constexpr std::size_t kCheckedPieceBytes = std::size_t{1} << 18;

// Reads the values piece by piece to where `place_of(bytes read so far)` says, and checks them.
template <class PlaceOf>
void read_checked(const InputFile& file, const TensorEntry& entry, PlaceOf place_of) {
  Checksum checksum;
  for (std::size_t at = entry.begin; at < entry.end; at += kCheckedPieceBytes) {
    const std::size_t size = std::min(kCheckedPieceBytes, entry.end - at);
    char* const out = place_of(at - entry.begin);
    file.read(at, out, size);
    checksum.update(out, size);
  }
  check_values(entry, checksum, file.path().string());
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  with_errors_as<CheckpointError>([&] {
    file_ = std::make_shared<const InputFile>(path);
    std::string start(std::min(file_->size(), kLengthBytes), '\0');
    file_->read(0, start.data(), start.size());
    std::string header(checked_header_bytes(start, file_->size(), path.string()), '\0');
    file_->read(kLengthBytes, header.data(), header.size());
    index_ = parse_header(header, file_->size(), path.string());
  });
}

const std::filesystem::path& SafetensorsFile::path() const noexcept { return file_->path(); }

void SafetensorsFile::read(const TensorEntry& entry, void* out) const {
  with_errors_as<CheckpointError>([&] {
    if (entry.checksum.empty()) return file_->read(entry.begin, out, entry.end - entry.begin);
    read_checked(*file_, entry, [&](std::size_t done) { return static_cast<char*>(out) + done; });
  });
}

void SafetensorsFile::check() const {
  if (!has_checksums()) return;
  std::string piece(kCheckedPieceBytes, '\0');
  with_errors_as<CheckpointError>([&] {
    for (const TensorEntry& entry : index_.tensors)
      read_checked(*file_, entry, [&](std::size_t) { return piece.data(); });
  });
}

}  // namespace kindling
