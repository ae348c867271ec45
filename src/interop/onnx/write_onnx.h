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

// Writes a program with its weights atomically as an ONNX model (opset 20) with the user inputs and sizes of
// the program. Symbols become dynamic sizes, named by `size_names` or "batch" for the first size of an input.
// `metadata`: texts by name. Throws CheckpointError for a program in training mode, for an unsupported
// operator (with its layer), for a write through a view, and for more than protobuf's limit of 2 GB.
void write_onnx(const ExportedProgram& program, const ProgramWeights& weights,
                const std::filesystem::path& path, const std::map<std::string, std::string>& size_names = {},
                const std::map<std::string, std::string>& metadata = {});

// Writes the program of a loaded .pt2 file. Its extra files become the metadata, if they are UTF-8.
void write_onnx(const Pt2File& file, const std::filesystem::path& path,
                const std::map<std::string, std::string>& size_names = {});

// Returns the supported operators, sorted: "aten.conv2d".
KINDLING_API std::vector<std::string> operators_in_onnx();

}  // namespace kindling
