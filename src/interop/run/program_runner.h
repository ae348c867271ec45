#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/run/program_call.h"
#include "interop/run/program_inputs.h"
#include "interop/run/program_values.h"

namespace kindling {

// Runs an exported program call by call, like the forward pass of a C++ model: autograd and autocast see
// every operator. The constructor resolves all operators and checks all arguments.
class ProgramRunner {
 public:
  // Throws CheckpointError for a program that cannot be run.
  explicit ProgramRunner(const ExportedProgram& program);

  // The names of layers whose calls have a training mode or whose tensors the program modifies, such as
  // "net.1"; "" is the whole model.
  const std::vector<std::string>& layers() const noexcept { return layers_; }

  // `weights`: parameters, buffers and constants, in the order of program.inputs, on one device. `inputs`:
  // the tensors of the user, in order. `layers`: modules that determine the mode of each of layers(). The
  // program modifies tensors of layers in training mode only, and copies of the others. Throws DataError for
  // inputs that the program was not exported for. Thread-safe.
  std::vector<at::Tensor> run(std::span<const at::Tensor> weights, std::span<const at::Tensor> inputs,
                              std::span<const torch::nn::Module* const> layers) const;

  std::size_t num_inputs() const noexcept { return input_values_.size(); }
  // True if some calls have a training mode; true if some were recorded in it.
  bool has_mode() const noexcept;
  bool is_in_training_mode() const noexcept;
  // The layer of each operator that draws random numbers in evaluation mode, too.
  const std::vector<std::string>& layers_that_draw() const noexcept { return layers_that_draw_; }

 private:
  struct Mutation {
    std::size_t from, to;              // values
    std::optional<std::size_t> layer;  // in layers_, of a weight
  };
  struct ModifiedWeight {
    std::size_t weight;  // in weights_
    std::size_t layer;   // in layers_
  };
  void add_inputs(const ExportedProgram& program, ProgramNames& names);
  void add_outputs(const ExportedProgram& program, ProgramNames& names);
  void skip_counters(const ExportedProgram& program, const ProgramNames& names);
  void find_layers(const ExportedProgram& program, const ProgramNames& names);
  std::vector<bool> find_modified() const;
  void protect_weights(ProgramState& state, std::span<const at::Tensor> weights,
                       std::span<const torch::nn::Module* const> layers) const;
  void note_last_uses(const ProgramNames& names);

  std::size_t num_values_ = 0;
  std::vector<std::size_t> weights_;  // their values
  ProgramInputs inputs_;
  std::vector<std::size_t> input_values_;
  std::vector<ProgramCall> calls_;
  std::vector<std::string> layers_, layers_that_draw_;
  std::vector<std::size_t> layer_of_call_;          // in layers_; layers_.size() for calls without modes
  std::vector<std::vector<std::size_t>> released_;  // by call: values that no later call uses
  std::vector<ProgramOperand> outputs_;
  std::vector<Mutation> mutations_;
  std::vector<ModifiedWeight> modified_;  // in place
};

}  // namespace kindling
