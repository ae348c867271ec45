#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "kindling/formats/safetensors.h"
#include "kindling/formats/torch_file.h"

namespace kindling {

// A file of named tensors, safetensors or of torch.save, recognised by its first bytes. All functions throw
// CheckpointError.
class WeightsFile {
 public:
  // `key` as for TorchFile; only those have one.
  static WeightsFile open(const std::filesystem::path& path, const std::string& key = "");
  // Logs a warning that names the tensors of types that LibTorch does not have; they are skipped.
  explicit WeightsFile(SafetensorsFile file);
  explicit WeightsFile(TorchFile file);

  struct Entry {
    std::string name;
    TensorType type;
    std::vector<std::int64_t> shape;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }

  // Reads an entry by its index, in row-major order.
  void read(std::size_t place, void* out) const;
  // Returns the first entry with the same storage and values as this one, such as tied weights.
  std::size_t first_alike(std::size_t place) const { return first_alike_[place]; }

 private:
  std::variant<SafetensorsFile, TorchFile> file_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> first_alike_;
  Metadata metadata_;
};

}  // namespace kindling
