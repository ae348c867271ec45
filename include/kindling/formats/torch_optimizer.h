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

// Options by Python's names: "lr", "betas".
using TorchOptions = std::map<std::string, std::variant<bool, std::int64_t, double, std::vector<double>>>;

// One of "param_groups".
struct TorchOptimizerGroup {
  std::vector<std::int64_t> parameters{};  // their numbers in "params"
  TorchOptions options{};                  // only numbers and tuples of numbers are kept
};

// One value of "state", a tensor or a number.
struct TorchOptimizerEntry {
  std::int64_t parameter = 0;
  std::string name{};              // "exp_avg"
  std::optional<double> number{};  // absent: it is a tensor
  std::size_t tensor = 0;          // its index in values.tensors()
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

// Writes a file for optimizer.load_state_dict(torch.load(path)): the tensors of each parameter, by its
// number, under Python's names. No two tensors share a storage, because Python increments a step in place,
// once for each parameter. Atomic and durable (write_file_atomically).
KINDLING_API void write_torch_optimizer(const std::filesystem::path& path,
                                        std::span<const TorchOptimizerGroup> groups,
                                        const std::map<std::int64_t, std::vector<TensorToWrite>>& state);

}  // namespace kindling
