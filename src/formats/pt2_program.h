#pragma once

#include "formats/exported_program.h"
#include "formats/json_view.h"

// The JSON in which torch.export.save writes a program, by its schema of major version 8 (PyTorch 2.7 on).
namespace kindling {

// Throws CheckpointError: for what is not as the schema has it, and, with the layer that has it, for what
// programs that can be trained here do not have: control flow, objects of their own, custom layouts.
ExportedProgram program_of(const JsonView& model);

}  // namespace kindling
