#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/pt2/pt2_file.h"
#include "interop/run/program_runner.h"

namespace kindling {

// The program that an exported model runs in evaluation mode instead of its training program. It uses the
// parameters and buffers of the training program, and its own constants.
class EvaluationProgram {
 public:
  // Throws CheckpointError for a program that cannot be run, that was exported in training mode, or whose
  // parameters, buffers or `num_inputs` differ from those of the program `training`, which `training_file`
  // names in messages. `name`: of the program in the file.
  EvaluationProgram(const std::filesystem::path& path, const std::string& name, const Pt2File& training,
                    std::size_t num_inputs, const std::string& training_file);

  const ExportedProgram& program() const noexcept { return file_.program(); }

  // `training_weights`: those of the training program, in the order of its inputs. `model` is in evaluation
  // mode. Throws DataError for inputs that the program was not exported for.
  std::vector<at::Tensor> run(std::span<const at::Tensor> training_weights,
                              std::span<const at::Tensor> inputs, const torch::nn::Module& model);

 private:
  void share_weights(const ExportedProgram& training, const std::string& training_file);

  Pt2File file_;
  ProgramRunner runner_;
  std::vector<std::optional<std::size_t>> shared_{};  // by weight: the number of the training program's
  std::vector<at::Tensor> own_{};                     // by weight: undefined if it is shared
};

}  // namespace kindling
