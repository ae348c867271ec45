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

// Weights of PyTorch, as torch.save and torch.jit.save write them: a pickle and the bytes of each storage, in
// a zip archive, or before PyTorch 1.6 one after the other. A pickle is a program; nothing in it is ever
// imported, constructed or called here. Tensors and their containers are recognised by their names, and
// everything else becomes an object that only says what Python would have called. All functions throw
// CheckpointError.
namespace kindling {

struct ByteSource;
struct TorchOptimizerFile;
class TorchStorageBytes;

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
  // The state dict is a dict of tensors, or the parameters and buffers of a whole module. `key` names the
  // entry that it is: "model" of {"model": …, "epoch": 3}, "model.state_dict" of a dict in a dict. Empty: it
  // is the file's object, or the only state dict in it, outside of which the file has no tensor.
  explicit TorchFile(const std::filesystem::path& path, const std::string& key = "");
  // The same for a whole file in memory; messages use `place` as its name.
  static TorchFile of_bytes(std::string bytes, const std::string& place, const std::string& key = "");

  const std::vector<TorchTensor>& tensors() const noexcept { return tensors_; }  // in the order of the dict
  const TorchTensor* find(std::string_view name) const;                          // nullptr: no such tensor

  // The entries of the state dict that are not tensors, for messages: "epoch" (a number).
  const std::vector<std::string>& skipped() const noexcept { return skipped_; }

  // Copies the values of one of tensors(): size_bytes() of them, little-endian, in row-major order. The first
  // read of a storage checks all its bytes against the archive's CRC-32; files before PyTorch 1.6 have none.
  // A tensor with gaps in its storage needs memory for the whole range that it spans.
  void read(const TorchTensor& tensor, void* out) const;

 private:
  friend KINDLING_API TorchOptimizerFile open_torch_optimizer(const std::filesystem::path&,
                                                              const std::string&);
  friend KINDLING_API TorchOptimizerFile torch_optimizer_of_bytes(std::string, const std::string&,
                                                                  const std::string&);
  TorchFile() = default;
  void open(ByteSource source, const std::string& place, const std::string& key);
  static TorchOptimizerFile open_optimizer(ByteSource source, const std::string& place,
                                           const std::string& key);

  std::shared_ptr<const TorchStorageBytes> storages_;
  std::vector<TorchTensor> tensors_;
  std::vector<std::string> skipped_;
};

// Writes a file that Python's torch.load reads as an OrderedDict by default (weights_only=True). Tensors of
// the same type, size and `data` share a storage, as tied weights do. Rejects duplicate names and sizes that
// do not match type and shape. Atomic and durable (write_file_atomically); writes the values directly from
// their memory.
KINDLING_API void write_torch_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace kindling
