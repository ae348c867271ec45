#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/torch/pickle.h"
#include "formats/zip/zip_archive.h"

namespace kindling {

// A storage in a file, by the key that pickles use.
struct TorchStorage {
  std::size_t index = 0;  // among the file's storages
  std::size_t size_bytes = 0;
};
using TorchStorages = std::unordered_map<std::string_view, TorchStorage>;

// The bytes of all storages of a file: entries of a zip archive, which have a CRC-32 each, or pieces of a
// file of PyTorch before 1.6, which has no checksums. Several threads may read.
class TorchStorageBytes {
 public:
  struct Piece {
    std::size_t begin = 0, size = 0;
  };
  explicit TorchStorageBytes(ZipArchive archive)
      : archive_(std::move(archive)), is_checked_(archive_->entries().size()) {}
  TorchStorageBytes(ByteSource source, std::vector<Piece> pieces)
      : source_(std::move(source)), pieces_(std::move(pieces)) {}

  // Copies some of a storage's bytes. Verifies those of an archive, once.
  void read(std::size_t index, std::size_t begin, void* out, std::size_t size) const;

 private:
  std::optional<ZipArchive> archive_;
  mutable std::vector<std::atomic<bool>> is_checked_;  // entries of the archive
  ByteSource source_;
  std::vector<Piece> pieces_;
};

// An opened file of torch.save or torch.jit.save.
struct TorchContainer {
  // Returns the source code of a module of a TorchScript archive, such as "__torch__.torch.nn"; empty: it has
  // none.
  std::string code_of(std::string_view module) const;

  std::string pickle_bytes{};  // of which `pickle` and the keys of `by_key` have views
  std::optional<Pickle> pickle{};
  std::shared_ptr<const TorchStorageBytes> storages{};
  TorchStorages by_key{};
  bool is_script = false;
  std::string place{};

 private:
  friend std::unique_ptr<TorchContainer> open_torch(ByteSource, const std::string&, const std::string&);
  void open_archive(ByteSource source, const std::string& remedy);
  void open_old(ByteSource source, const std::string& remedy);

  std::optional<ZipArchive> archive_{};
  std::unordered_map<std::string_view, const ZipEntry*> code_{};  // by the entry's name without its folders
};

// True if a file begins like one of torch.save, of any version.
bool begins_like_torch(std::string_view start);
inline constexpr std::size_t kTorchStartBytes = 32;

// Throws CheckpointError; `remedy` ends messages about what PyTorch reads and Kindling does not.
std::unique_ptr<TorchContainer> open_torch(ByteSource source, const std::string& place,
                                           const std::string& remedy);

}  // namespace kindling
