#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// Named tensors (parameters, then buffers, in registration order) with Python's names: `net.1.weight`. The
// tensors are the module's own, not copies.
struct KINDLING_API StateDict {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, std::string> metadata;  // small values that are saved with the tensors

  const at::Tensor* find(const std::string& name) const;  // nullptr: not found
};

// Always copies the tensors; those on a device are copied one by one.
KINDLING_API StateDict copy_to(const StateDict& state, Device device);

// Returns the state of a module.
KINDLING_API StateDict state_dict(const torch::nn::Module& module);

// Which saved values to load, and under which names.
struct LoadOptions {
  bool strict = true;    // false: loads matching values; the rest of the model is unchanged
  std::string prefix{};  // only names with this prefix, which is removed
  // Then, prefixes to replace: {{"encoder.", "net.0."}} loads encoder.weight into net.0.weight. The first
  // match counts.
  std::vector<std::pair<std::string, std::string>> map{};
  // For a file of torch.save, the entry that is the state dict: "model", or a path: "model.state_dict".
  std::string key{};
};

// The outcome for the values and for the model's tensors, by the model's names.
struct KINDLING_API LoadReport {
  // A value whose shape does not match. `wanted` is the model's; empty: its lazy layer cannot take the
  // value's.
  struct Misfit {
    std::string name, shape, wanted;
  };
  std::vector<std::string> loaded;
  std::vector<Misfit> misfits;
  std::vector<std::string> missing;     // only in the model
  std::vector<std::string> unexpected;  // only among the values

  // Returns "4 tensors loaded", then a line for everything else.
  std::string text() const;
};

// Writes the values into the module's own parameters and buffers, which keep their memory and dtype. Lazy
// layers take their shape from the values and are created on the CPU. Throws CheckpointError that lists the
// first five missing names, unexpected names and wrong shapes, unless options.strict is false, and for two
// values of one name (then nothing has been changed).
KINDLING_API LoadReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                        const std::string& place = "state_dict",
                                        const LoadOptions& options = {});

// The same from a safetensors file or a Python state dict (`.pt`, torch.save), directly into the parameters'
// memory: at most one tensor at a time is held in host memory, and none when reading into a parameter on the
// CPU. Names and shapes are checked before the first write; only a disk error during reading and a tensor
// whose checksum does not match leave the model partly loaded. For a checkpoint, {.prefix = "model."} loads
// the model's own weights; load_validated_weights() in checkpoint_file.h loads those that validation
// measured, which may be averages (a warning says so if they differ). Throws CheckpointError.
KINDLING_API LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                                     const LoadOptions& options = {});

// Returns the values of `state` that options.prefix selects, under the names given by options.map. Throws
// CheckpointError for two of one name.
KINDLING_API StateDict renamed(const StateDict& state, const LoadOptions& options,
                               const std::string& place = "state_dict");

// Safetensors files, readable by Python's `safetensors`. Tensors of any device and layout are written; they
// are read to the CPU. A file has checksums in two entries of its metadata, which are not part of
// StateDict::metadata; loading verifies them. All functions here throw CheckpointError; an existing file is
// replaced atomically.
// Like Python's load_file(), loading a file of at least 16 MiB without checksums, such as one that Python has
// written, maps it into memory: a page is read when it is first used, and changes of the tensors do not reach
// the file. While such tensors exist, replace the file as a whole or delete it, but do not overwrite it in
// place.
KINDLING_API void save_safetensors(const StateDict& state, const std::filesystem::path& path);
KINDLING_API StateDict load_safetensors(const std::filesystem::path& path);

// Writes a file that Python's torch.load reads as a state dict by default; the metadata is not saved.
KINDLING_API void save_torch(const StateDict& state, const std::filesystem::path& path);

// Reads either kind of file, recognised by its first bytes. `key`: as LoadOptions::key, see TorchFile.
// Tensors that share memory in Python do so here too.
KINDLING_API StateDict load_state_file(const std::filesystem::path& path, const std::string& key = "");

}  // namespace kindling
