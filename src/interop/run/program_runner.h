#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/run/program_call.h"
#include "interop/run/program_inputs.h"
#include "interop/run/program_values.h"

namespace kindling {

// Runs an exported program, call by call, as its model's forward in C++ would: autograd and autocast see
// every operator. All operators have been found and all arguments have been checked before the first run.
class ProgramRunner {
 public:
  // Throws CheckpointError for a program that cannot be run.
  explicit ProgramRunner(const ExportedProgram& program);

  // The names of layers, "net.1", whose calls work otherwise in training; "" is the whole model.
  const std::vector<std::string>& layers() const noexcept { return layers_; }

  // `weights`: parameters, buffers and constants, in the order of program.inputs, on one device. `inputs`:
  // the user's tensors, in their order. `layers`: in whose mode each of layers() is. Throws DataError for
  // inputs that the program was not exported for. Several threads may run it.
  std::vector<at::Tensor> run(std::span<const at::Tensor> weights, std::span<const at::Tensor> inputs,
                              std::span<const torch::nn::Module* const> layers) const;

  std::size_t num_inputs() const noexcept { return input_values_.size(); }
  // Layers that work otherwise in training: whether there are some, and whether they do.
  bool has_mode() const noexcept;
  bool is_in_training_mode() const noexcept;

 private:
  struct Mutation {
    std::size_t from, to;  // values
  };
  void add_inputs(const ExportedProgram& program, ProgramNames& names);
  void add_outputs(const ExportedProgram& program, ProgramNames& names);
  void skip_counters(const ExportedProgram& program, const ProgramNames& names);
  void find_layers(const ExportedProgram& program, const ProgramNames& names);
  void note_last_uses(const ProgramNames& names);

  std::size_t num_values_ = 0;
  std::vector<std::size_t> weights_;  // the values that they are
  ProgramInputs inputs_;
  std::vector<std::size_t> input_values_;
  std::vector<ProgramCall> calls_;
  std::vector<std::string> layers_;
  std::vector<std::size_t> layer_of_call_;          // in layers_; behind its end for calls without modes
  std::vector<std::vector<std::size_t>> released_;  // by call: values that nobody uses behind it
  std::vector<ProgramOperand> outputs_;
  std::vector<Mutation> mutations_;
};

}  // namespace kindling
