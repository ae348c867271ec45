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

// Optimizers of PyTorch, as torch.save(optimizer.state_dict(), path) writes them:
// {"state": {0: {"exp_avg": tensor, …}, …}, "param_groups": [{"lr": 0.1, …, "params": [0, 1]}]}. What holds
// for state dicts holds here: nothing of the file is called. All functions throw CheckpointError.
namespace kindling {

// Options by Python's names: "lr", "betas".
using TorchOptions = std::map<std::string, std::variant<bool, std::int64_t, double, std::vector<double>>>;

// One of "param_groups".
struct TorchOptimizerGroup {
  std::vector<std::int64_t> parameters{};  // the numbers that "params" gives them
  TorchOptions options{};                  // of others than numbers and tuples of them nothing is kept
};

// One value of "state", a tensor or a number.
struct TorchOptimizerEntry {
  std::int64_t parameter = 0;
  std::string name{};              // "exp_avg"
  std::optional<double> number{};  // absent: it is a tensor
  std::size_t tensor = 0;          // its place among values.tensors()
};

// A whole file: the values of the state, and what they belong to.
struct TorchOptimizerFile {
  TorchFile values;
  std::vector<TorchOptimizerGroup> groups;  // no parameter is in two of them, or twice in one
  std::vector<TorchOptimizerEntry> state;   // of their parameters
};

// `key` names the entry of a dict that is the optimizer's: "optimizer" of {"model": …, "optimizer": …}.
KINDLING_API TorchOptimizerFile open_torch_optimizer(const std::filesystem::path& path,
                                                     const std::string& key = "");
// The same of a whole file in memory; `place` stands for it in messages.
KINDLING_API TorchOptimizerFile torch_optimizer_of_bytes(std::string bytes, const std::string& place,
                                                         const std::string& key = "");

// A file for optimizer.load_state_dict(torch.load(path)). The tensors of each parameter, by its number, under
// the names that Python gives them. No two share a storage: Python counts a step in place, once for each
// parameter. Atomic and durable (write_file_atomically).
KINDLING_API void write_torch_optimizer(const std::filesystem::path& path,
                                        std::span<const TorchOptimizerGroup> groups,
                                        const std::map<std::int64_t, std::vector<TensorToWrite>>& state);

}  // namespace kindling
