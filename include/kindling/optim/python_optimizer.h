#pragma once

#include <filesystem>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/formats/torch_optimizer.h"
#include "kindling/optim/optimizer.h"

// The state of Python's optimizers, torch.save(optimizer.state_dict(), path), so that a training begun there
// goes on here and the other way round. Both throw CheckpointError.
namespace kindling {

// Parameters are matched by their order, group by group, as Python does: both optimizers were made of the
// same parameters in the same order. Throws, and changes nothing, for other numbers of groups and parameters,
// other shapes, and options that are not those of the file, which tell the kind of an optimizer. Learning
// rates are none of these: they stay as they are here, and one that is another in the file is told to the app
// log as a warning. `key` is the entry of a dict that is the optimizer's: "optimizer" of {"model": …,
// "optimizer": …}.
KINDLING_API void load_python_optimizer(Optimizer& optimizer, const std::filesystem::path& path,
                                        const std::string& key = "");

// For optimizer.load_state_dict(torch.load(path)) of an optimizer of the same parameters in the same order,
// which takes the options from the file, too. Throws for a rule without Optimizer::python_options().
KINDLING_API void save_python_optimizer(const Optimizer& optimizer, const std::filesystem::path& path);

// What Optimizer::python_options() gives: the values of an option struct, without those that are no numbers.
KINDLING_API TorchOptions python_options_of(const OptionSet& options);
template <OptionStruct Options>
TorchOptions python_options_of(Options options) {
  return python_options_of(OptionSet::of(options));
}

}  // namespace kindling
