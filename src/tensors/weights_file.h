#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// A file of named tensors, safetensors or of torch.save, recognised by its first bytes, or the index of
// several such files (model.safetensors.index.json). All functions throw CheckpointError.
class KINDLING_API WeightsFile {
 public:
  // `key` as for TorchFile; only those have one. Throws for a file without tensors. Logs a warning that names
  // what is skipped: tensors of types that LibTorch does not have, and entries that are not tensors.
  static WeightsFile open(const std::filesystem::path& path, const std::string& key = "");
  explicit WeightsFile(SafetensorsFile file);
  explicit WeightsFile(TorchFile file);

  struct Entry {
    std::string name;
    TensorType type;
    std::vector<std::int64_t> shape;
    std::size_t first_alike;  // the first entry with the same storage and values, such as tied weights
    // A further name of a tensor in the file, which Python's save_model has recorded in its metadata. The
    // model need not have it.
    bool is_alias = false;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }

  // Reads an entry by its index, in row-major order.
  void read(std::size_t place, void* out) const;

  // Maps large safetensors files without checksums into memory, which takes a tenth of the time of a copy.
  void map_large_files();
  // Returns the values of an entry in a mapped file; nullptr: read() copies them.
  std::shared_ptr<char> mapped(std::size_t place) const;

 private:
  using File = std::variant<SafetensorsFile, TorchFile>;
  static WeightsFile open_index(const std::filesystem::path& path);
  WeightsFile() = default;
  void add(SafetensorsFile file);
  void add(TorchFile file);
  void add_aliases();

  std::vector<File> files_;
  std::vector<std::shared_ptr<char>> maps_;  // of the files; empty: none is mapped
  std::vector<Entry> entries_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // of the entries: file, and tensor in it
  Metadata metadata_;                                        // of one safetensors file
};

// True for the index of a model in several files, by its name: "model.safetensors.index.json".
KINDLING_API bool is_weights_index(const std::filesystem::path& path);

}  // namespace kindling
