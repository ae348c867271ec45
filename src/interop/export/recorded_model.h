#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <vector>

#include "formats/pt2/program_weight.h"
#include "interop/export/dynamic_sizes.h"
#include "kindling/interop/export_program.h"
#include "kindling/tensors/batch.h"
#include "nn/scoped_model_state.h"

namespace kindling {

// The forward pass of a model as a program, with its weights: the source of all export formats.
struct RecordedModel {
  ExportedProgram program{};
  std::vector<ProgramWeight> weights{};  // with the constants
  std::vector<at::Tensor> tensors{};     // of the weights, in their order, on the CPU
  Batch example{};                       // arguments of the program, nested
  std::vector<std::size_t> used{};       // indices of the example's tensors that are inputs
};

// Runs the forward pass with batches made from `example` for all combinations of sizes and compares the
// calls. `state` restores the values of the model in between. `drops_unused_inputs`: tensors of the example
// that the forward pass does not use, such as labels, do not become inputs. Throws Error if the forward pass
// cannot become a program.
RecordedModel recorded_model(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                             const ScopedModelState& state, const DynamicSizes& sizes,
                             bool drops_unused_inputs);

}  // namespace kindling
