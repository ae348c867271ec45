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

// Named tensors (parameters, then buffers, in the order of registration) with Python's names: `net.1.weight`.
// The tensors are the module's own, no copies.
struct KINDLING_API StateDict {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, std::string> metadata;  // small values that are saved beside the tensors

  const at::Tensor* find(const std::string& name) const;  // nullptr: not there
};

// With copies of the tensors, always; those that are on a device come over one by one.
KINDLING_API StateDict copy_to(const StateDict& state, Device device);

// Those of a module.
KINDLING_API StateDict state_dict(const torch::nn::Module& module);

// What of saved values is loaded, and under which names.
struct LoadOptions {
  bool strict = true;    // false: what fits is loaded, the rest of the model stays as it is
  std::string prefix{};  // only names that begin so; it is taken off
  // Then, beginnings of names: {{"encoder.", "net.0."}} loads encoder.weight into net.0.weight. The first
  // that fits counts.
  std::vector<std::pair<std::string, std::string>> map{};
  // Of a file of torch.save, the entry of a dict that is the state dict: "model" of {"model": …, "epoch": 3}.
  std::string key{};
};

// What has become of the values and of the model's tensors, by the model's names.
struct KINDLING_API LoadReport {
  // A value whose shape does not fit. `wanted` is the model's; empty: its lazy layer cannot take the value's.
  struct Misfit {
    std::string name, shape, wanted;
  };
  std::vector<std::string> loaded;
  std::vector<Misfit> misfits;
  std::vector<std::string> missing;     // in the model alone
  std::vector<std::string> unexpected;  // among the values alone

  // "4 tensors loaded", then a line for everything else.
  std::string text() const;
};

// Writes the values into the module's own parameters and buffers, which stay where they are and keep their
// dtype. Lazy layers take their shape from the values and are made on the CPU. Throws CheckpointError that
// lists every missing name, unexpected name and wrong shape, unless options.strict is false, and for two
// values of one name (then nothing has been changed).
KINDLING_API LoadReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                        const std::string& place = "state_dict",
                                        const LoadOptions& options = {});

// The same from a safetensors file or a state dict of Python's (`.pt`, torch.save), straight to where the
// parameters are: no more than one tensor is held in host memory on the way, and none when it is read into a
// parameter on the CPU. Everything is checked before the first write; only a disk that fails in between
// leaves the model half loaded. Of a checkpoint, {.prefix = "model."} takes the model's own weights; those
// that validation measured, which may be averages, are load_validated_weights() in checkpoint_file.h (there
// is a warning when they differ). Throws CheckpointError.
KINDLING_API LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                                     const LoadOptions& options = {});

// Those of `state` that options.prefix takes, under the names that options.map gives them. Throws
// CheckpointError for two of one name.
KINDLING_API StateDict renamed(const StateDict& state, const LoadOptions& options,
                               const std::string& place = "state_dict");

// safetensors files, readable by Python's `safetensors`. Tensors of any device and layout are written; they
// are read to the CPU. All here throw CheckpointError; a file that exists is replaced atomically.
KINDLING_API void save_safetensors(const StateDict& state, const std::filesystem::path& path);
KINDLING_API StateDict load_safetensors(const std::filesystem::path& path);

// A file that Python's torch.load reads as a state dict by default; the metadata is left out.
KINDLING_API void save_torch(const StateDict& state, const std::filesystem::path& path);

// Either kind of file, which its first bytes tell. `key` names the entry of a torch.save'd dict that is the
// state dict: "model" of {"model": …, "epoch": 3}. Tensors that are one in Python are one here, too.
KINDLING_API StateDict load_state_file(const std::filesystem::path& path, const std::string& key = "");

}  // namespace kindling
