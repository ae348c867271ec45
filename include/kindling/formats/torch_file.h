#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"

// State dicts of PyTorch, as torch.save writes them since PyTorch 1.6: a zip archive of a pickle and the
// bytes of each storage. A pickle is a program; nothing in it is ever called here. Only the fixed set of
// operations that state dicts consist of is accepted, everything else is rejected. All functions throw
// CheckpointError.
namespace kindling {

struct TorchOptimizerFile;

// True if a file begins like one of torch.save, of any version.
KINDLING_API bool is_torch_file(const std::filesystem::path& path);

// A tensor of such a file. Its values are inside its storage and do not exceed it.
struct TorchTensor {
  std::string name;  // any UTF-8, also "/", "..", NUL: never use it as a path
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};    // empty: rank 0, one value
  std::vector<std::int64_t> strides = {};  // in values, one for each dimension
  std::size_t storage = 0;                 // index among the file's storages: tied weights share one
  std::size_t offset = 0;                  // of the first value in the storage, in values

  KINDLING_API std::size_t size_bytes() const;  // of all values
};

// An open file: the tensors it names are in memory, their values are read one tensor at a time. Several
// threads may use it at once.
class KINDLING_API TorchFile {
 public:
  // `key` names the dict entry that is the state dict: "model" of {"model": …, "epoch": 3}. Empty: the file's
  // only object is the state dict.
  explicit TorchFile(const std::filesystem::path& path, const std::string& key = "");
  // The same for a whole file in memory; messages use `place` as its name.
  static TorchFile of_bytes(std::string bytes, const std::string& place, const std::string& key = "");

  const std::vector<TorchTensor>& tensors() const noexcept { return tensors_; }  // in the order of the dict
  const TorchTensor* find(std::string_view name) const;                          // nullptr: no such tensor

  // Copies the values of one of tensors(): size_bytes() of them, little-endian, in row-major order. The first
  // read of a storage checks all its bytes against the archive's CRC-32. A tensor with gaps in its storage
  // needs memory for the whole range that it spans.
  void read(const TorchTensor& tensor, void* out) const;

 private:
  struct Storages;
  friend KINDLING_API TorchOptimizerFile open_torch_optimizer(const std::filesystem::path&,
                                                              const std::string&);
  friend KINDLING_API TorchOptimizerFile torch_optimizer_of_bytes(std::string, const std::string&,
                                                                  const std::string&);
  TorchFile() = default;

  std::shared_ptr<Storages> storages_;
  std::vector<TorchTensor> tensors_;
};

// Writes a file that Python's torch.load reads as an OrderedDict by default (weights_only=True). Tensors of
// the same type, size and `data` share a storage, as tied weights do. Rejects duplicate names and sizes that
// do not match type and shape. Atomic and durable (write_file_atomically); writes the values directly from
// their memory.
KINDLING_API void write_torch_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace kindling
