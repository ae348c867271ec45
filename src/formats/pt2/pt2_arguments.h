#pragma once

#include "formats/pt2/exported_program.h"
#include "formats/pt2/json_view.h"

namespace kindling {

// What calls are given and what they give, in the JSON of torch.export.save. All throw CheckpointError.
ProgramArgument argument_of(const JsonView& value);
ProgramSize size_of(const JsonView& value);
ProgramTensor tensor_of(const JsonView& meta);

}  // namespace kindling
