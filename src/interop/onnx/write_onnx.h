#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "formats/pt2/program_weight.h"
#include "kindling/base/export.h"

namespace kindling {

class Pt2File;

// Parameters, buffers and constants by the names that the program's inputs have as targets: "net.1.weight".
using ProgramWeights = std::map<std::string, at::Tensor>;

// Writes a program with its weights as a model of ONNX (opset 20), whose inputs are the user's and whose
// sizes are those of the program: what is a symbol there may have any value, and has its name of `size_names`
// or, if it is the first size of an input, "batch". Atomic. Throws CheckpointError
// for a program in training mode, for an operator that has no form in ONNX, named with its layer, for a write
// through a view, and for more than protobuf's 2 GB.
void write_onnx(const ExportedProgram& program, const ProgramWeights& weights,
                const std::filesystem::path& path, const std::map<std::string, std::string>& size_names = {});

// The same of a .pt2 that has been read.
void write_onnx(const Pt2File& file, const std::filesystem::path& path,
                const std::map<std::string, std::string>& size_names = {});

// The operators that have a form in ONNX, "aten.conv2d", sorted.
KINDLING_API std::vector<std::string> operators_in_onnx();

}  // namespace kindling
