#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "formats/pt2/pt2_file.h"
#include "interop/run/evaluation_program.h"
#include "interop/run/loaded_weights.h"
#include "interop/run/program_runner.h"
#include "kindling/interop/exported_module.h"

namespace kindling {

struct ExportedModule::Program {
  explicit Program(const std::filesystem::path& path)
      : file(path), runner(file.program()), weights(load_weights_of(file)) {}

  Pt2File file;
  ProgramRunner runner;
  LoadedWeights weights;
  std::vector<std::size_t> constants{};  // indices in weights.tensors that are not part of the model's state
  std::vector<const torch::nn::Module*> layers{};  // whose modes apply to the runner's layers
  std::optional<EvaluationProgram> evaluation{};
  bool has_warned = false, has_warned_of_draws = false;
};

}  // namespace kindling
