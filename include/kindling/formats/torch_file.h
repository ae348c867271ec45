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

// State dicts of PyTorch, as torch.save writes them since PyTorch 1.6: a zip archive that holds a pickle and
// the bytes of each storage. A pickle is a program; here nothing of it is ever called: a list of what state
// dicts are made of is understood, all else is refused. All functions throw CheckpointError.
namespace kindling {

struct TorchOptimizerFile;

// Whether a file begins as one of torch.save does, of any version.
KINDLING_API bool is_torch_file(const std::filesystem::path& path);

// A tensor of such a file. Its values lie inside its storage, and are no more than it has.
struct TorchTensor {
  std::string name;  // any UTF-8, also "/", "..", NUL: never use it as a path
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};    // empty: rank 0, one value
  std::vector<std::int64_t> strides = {};  // in values, one for each size
  std::size_t storage = 0;                 // place among the file's storages: tied weights share one
  std::size_t offset = 0;                  // of the first value in the storage, in values

  KINDLING_API std::size_t size_bytes() const;  // of all values
};

// An open file: the tensors it names are in memory, their values are read one tensor at a time. It may be
// used by several threads at once.
class KINDLING_API TorchFile {
 public:
  // `key` names the entry of a dict that is the state dict: "model" of {"model": …, "epoch": 3}. Empty: the
  // file's one object is the state dict.
  explicit TorchFile(const std::filesystem::path& path, const std::string& key = "");
  // The same of a whole file in memory; `place` stands for it in messages.
  static TorchFile of_bytes(std::string bytes, const std::string& place, const std::string& key = "");

  const std::vector<TorchTensor>& tensors() const noexcept { return tensors_; }  // in the order of the dict
  const TorchTensor* find(std::string_view name) const;                          // nullptr: no such tensor

  // Copies the values of one of tensors(): size_bytes() of them, little-endian, in row order. The first read
  // of a storage checks all its bytes against the archive's CRC-32. A tensor that is no gapless piece of its
  // storage takes memory for the piece that it spans.
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

// A file that Python's torch.load reads as an OrderedDict by default (weights_only=True). Tensors of one
// type, size and `data` share a storage, as tied weights do. Refuses duplicate names and sizes that do not
// fit type and shape. Atomic and durable (write_file_atomically), straight from where the values are.
KINDLING_API void write_torch_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace kindling
