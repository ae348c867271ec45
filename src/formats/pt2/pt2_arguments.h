#pragma once

#include "formats/json_view.h"
#include "formats/pt2/exported_program.h"

namespace kindling {

// Arguments and results of calls, in the JSON of torch.export.save. All functions throw CheckpointError.
ProgramArgument argument_of(const JsonView& value);
ProgramSize size_of(const JsonView& value);
ProgramTensor tensor_of(const JsonView& meta);

}  // namespace kindling
