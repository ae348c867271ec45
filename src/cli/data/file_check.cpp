#include "cli/data/file_check.h"

#include <algorithm>
#include <cstddef>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/sha256.h"
#include "kindling/formats/gzip.h"

namespace kindling {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct FoundSum {
  std::int64_t size = 0;
  std::string sha256{};

  FileState state_for(const FileSum& wanted) const {
    if (size != wanted.size) return FileState::wrong;
    if (wanted.sha256.empty()) return FileState::unverified;
    return sha256 == wanted.sha256 ? FileState::right : FileState::wrong;
  }
};

FoundSum sum_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Sha256 sum;
  std::string piece;
  for (std::size_t offset = 0; offset < file.size(); offset += piece.size()) {
    piece.resize(std::min(kPieceBytes, file.size() - offset));
    file.read(offset, piece.data(), piece.size());
    sum.update(piece);
  }
  return {static_cast<std::int64_t>(file.size()), sum.hex()};
}

// Stops at the first piece beyond the wanted size, whatever the file expands to.
FoundSum sum_of_content(const std::filesystem::path& path, const FileSum& wanted) {
  constexpr std::size_t kMaxCompressedBytes = std::size_t{1} << 28;
  const std::string bytes = read_file(path, kMaxCompressedBytes);
  GzipReader reader(bytes, path.string());
  Sha256 sum;
  std::string piece(kPieceBytes, '\0');
  FoundSum found;
  while (found.size <= wanted.size) {
    const std::size_t count = reader.read(piece.data(), piece.size());
    sum.update(piece.data(), count);
    found.size += static_cast<std::int64_t>(count);
    if (count < piece.size()) break;
  }
  found.sha256 = sum.hex();
  return found;
}

std::string sum_text(const FoundSum& found, const FileSum& wanted) {
  std::string text = std::to_string(found.size) + " bytes";
  if (found.size == wanted.size) text += ", SHA-256 " + found.sha256;
  return text;
}

// `content`: the sum after decompression, of a file that may have been compressed again.
void compare_file(CheckedFile& file, const FileSum* content) try {
  const FoundSum found = sum_of_file(file.path);
  file.state = found.state_for(file.wanted);
  if (file.state != FileState::wrong) return;
  file.problem = sum_text(found, file.wanted);
  if (content == nullptr || content->sha256.empty()) return;
  if (sum_of_content(file.path, *content).state_for(*content) == FileState::right)
    file.state = FileState::repacked;
} catch (const Error& error) {
  file.state = FileState::wrong;
  if (file.problem.empty()) file.problem = error.what();
}

}  // namespace

const char* state_text(FileState state) {
  switch (state) {
    case FileState::right:
      return "ok";
    case FileState::repacked:
      return "ok, compressed differently";
    case FileState::unverified:
      return "size is right";
    case FileState::missing:
      return "missing";
    case FileState::wrong:
      break;
  }
  return "wrong";
}

std::vector<CheckedFile> check_files(const PublishedData& data, const std::filesystem::path& root) {
  std::filesystem::path folder = root;
  if (!data.archive_folder.empty() && !std::filesystem::exists(root / data.files.front().name))
    folder = root / data.archive_folder;
  std::vector<CheckedFile> checked;
  for (const PublishedFile& file : data.files) {
    const bool has_compressed = file.compressed.size > 0;
    const std::filesystem::path plain = folder / file.name, packed = plain.string() + ".gz";
    const bool reads_plain =
        !has_compressed || (std::filesystem::exists(plain) && !std::filesystem::exists(packed));
    CheckedFile& one = checked.emplace_back();
    one.path = reads_plain ? plain : packed;
    one.wanted = reads_plain ? file.sum : file.compressed;
    if (std::filesystem::exists(one.path)) compare_file(one, reads_plain ? nullptr : &file.sum);
  }
  return checked;
}

CheckedFile check_archive(const PublishedData& data, const std::filesystem::path& root) {
  CheckedFile archive{.path = root / data.archive, .wanted = data.archive_sum};
  if (std::filesystem::exists(archive.path)) compare_file(archive, nullptr);
  return archive;
}

}  // namespace kindling
