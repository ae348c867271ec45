#pragma once

#include <string>
#include <vector>

#include "formats/program_weight.h"

// The JSON that torch.export.load reads: a program, and what its weights are. Names of values have to be
// those of the program's tensors and numbers.
namespace kindling {

std::string json_of(const ExportedProgram& program);

// `files` has the name of the file of each storage: "weight_3".
std::string json_of(const std::vector<const ProgramWeight*>& weights, const std::vector<std::string>& files);

}  // namespace kindling
