#pragma once

#include "formats/exported_program.h"
#include "formats/json_view.h"

namespace kindling {

// Reads the calls of a program's graph into program.nodes, and what is said of their values into
// program.tensors and program.numbers. The parts of a forward under torch.no_grad() are graphs of their own
// in the file; their calls stand among the others here. Gives the new names of values that such parts give by
// others'.
std::map<std::string, ProgramArgument> read_nodes(const JsonView& graph, ExportedProgram& program);

// With names replaced.
ProgramArgument renamed(const ProgramArgument& argument, const std::map<std::string, ProgramArgument>& names);

}  // namespace kindling
