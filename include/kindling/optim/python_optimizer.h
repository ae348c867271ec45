#pragma once

#include <filesystem>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/formats/torch_optimizer.h"
#include "kindling/optim/optimizer.h"

// Exchanges the state of optimizers with Python, torch.save(optimizer.state_dict(), path), so that a run
// begun in one can be continued in the other. Both throw CheckpointError.
namespace kindling {

// Loads the state. Parameters are matched group by group: by name if the file has "param_names" (PyTorch 2.6
// and newer, for an optimizer of named_parameters()) and the optimizer has names, else by their order, as in
// Python. Throws, and changes nothing, for different numbers of groups or parameters, unknown names,
// different shapes, and options that differ from the file's, which identify the kind of the optimizer.
// Learning rates are not loaded; a warning reports those that differ. `key` is the dict entry of the
// optimizer: "optimizer" of {"model": …, "optimizer": …}.
KINDLING_API void load_python_optimizer(Optimizer& optimizer, const std::filesystem::path& path,
                                        const std::string& key = "");

// Writes a file for optimizer.load_state_dict(torch.load(path)) of an optimizer of the same parameters in the
// same order, which also takes the options from the file. Throws for a rule without
// Optimizer::python_options().
KINDLING_API void save_python_optimizer(const Optimizer& optimizer, const std::filesystem::path& path);

// For Optimizer::python_options(): returns the numbers and texts of an option struct.
KINDLING_API TorchOptions python_options_of(const OptionSet& options);
template <OptionStruct Options>
TorchOptions python_options_of(Options options) {
  return python_options_of(OptionSet::of(options));
}

}  // namespace kindling
