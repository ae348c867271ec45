#include "programs/write_onnx.h"

#include <ATen/core/grad_mode.h>

#include "formats/pt2_file.h"
#include "programs/loaded_weights.h"
#include "programs/onnx_operators.h"
#include "programs/onnx_program.h"

namespace kindling {

void write_onnx(const ExportedProgram& program, const ProgramWeights& weights,
                const std::filesystem::path& path, const std::map<std::string, std::string>& size_names) {
  const at::NoGradGuard no_grad;
  OnnxGraph graph;
  const OnnxProgram in_graph(program, weights, size_names, graph);
  graph.write(path);
}

void write_onnx(const Pt2File& file, const std::filesystem::path& path,
                const std::map<std::string, std::string>& size_names) {
  const LoadedWeights loaded = load_weights_of(file);
  ProgramWeights weights;
  auto tensor = loaded.tensors.begin();
  for (const ProgramInput& input : file.program().inputs)
    if (input.kind != ProgramInput::Kind::user) weights[input.target] = *tensor++;
  write_onnx(file.program(), weights, path, size_names);
}

void convert_to_onnx(const std::filesystem::path& pt2, const std::filesystem::path& onnx) {
  write_onnx(Pt2File(pt2), onnx);
}

std::vector<std::string> operators_in_onnx() {
  std::vector<std::string> names;
  for (const auto& [name, mapping] : onnx_mappings()) names.push_back(name);
  return names;
}

}  // namespace kindling
