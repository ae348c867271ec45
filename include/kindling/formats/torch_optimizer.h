#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"
#include "kindling/formats/torch_file.h"

// Optimizers of PyTorch, as torch.save(optimizer.state_dict(), path) writes them: {"state": {0: {"exp_avg":
// tensor, …}, …}, "param_groups": [{"lr": 0.1, …, "params": [0, 1]}]}. As for state dicts, nothing in the
// file is called. All functions throw CheckpointError.
namespace kindling {

// Options by Python's names: "lr", "betas", "line_search_fn". std::monostate is None, which files are
// written with; reading skips it.
using TorchOptions =
    std::map<std::string,
             std::variant<bool, std::int64_t, double, std::vector<double>, std::string, std::monostate>>;

// One of "param_groups".
struct TorchOptimizerGroup {
  std::vector<std::int64_t> parameters{};  // their numbers in "params"
  // Numbers, also as tensors, tuples of them and texts; other options are not kept. A tensor has the
  // value of the shortest decimal number that rounds to it in the tensor's type: 0.1, not 0.10000000149.
  TorchOptions options{};
  std::vector<std::string> names{};  // "param_names" of PyTorch 2.6 and newer; empty: there are none
};

// One value of "state": a tensor, a number, or a list of tensors.
struct TorchOptimizerEntry {
  std::int64_t parameter = 0;
  std::string name{};              // "exp_avg"
  std::optional<double> number{};  // absent: it is a tensor
  std::size_t tensor = 0;          // its index in values.tensors(), or that of the first one of the list
  std::optional<std::size_t> list_size{};  // absent: it is not a list
};

// A whole file: the values of the state, and the groups and names that they belong to.
struct TorchOptimizerFile {
  TorchFile values;
  std::vector<TorchOptimizerGroup> groups;  // each parameter is in one group, once
  std::vector<TorchOptimizerEntry> state;   // of their parameters
};

// `key` names the dict entry that is the optimizer's: "optimizer" of {"model": …, "optimizer": …}.
KINDLING_API TorchOptimizerFile open_torch_optimizer(const std::filesystem::path& path,
                                                     const std::string& key = "");
// The same for a whole file in memory; messages use `place` as its name.
KINDLING_API TorchOptimizerFile torch_optimizer_of_bytes(std::string bytes, const std::string& place,
                                                         const std::string& key = "");

// How Python keeps a value of the state.
enum class TorchStateForm { tensor, integer, real, list };

// Writes a file for optimizer.load_state_dict(torch.load(path)): the tensors of each parameter, by its
// number, under Python's names. No two tensors share a storage, because Python increments a step in place,
// once for each parameter. `forms` has the names of the values that Python does not keep as tensors: numbers,
// given as float64 scalars, and lists, given as tensors of their rows. Atomic and durable
// (write_file_atomically).
KINDLING_API void write_torch_optimizer(const std::filesystem::path& path,
                                        std::span<const TorchOptimizerGroup> groups,
                                        const std::map<std::int64_t, std::vector<TensorToWrite>>& state,
                                        const std::map<std::string, TorchStateForm>& forms = {});

}  // namespace kindling
