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

// A model's forward as a program, with what its weights are: the one thing that files are written of.
struct RecordedModel {
  ExportedProgram program{};
  std::vector<ProgramWeight> weights{};  // with the constants
  std::vector<at::Tensor> tensors{};     // of the weights, in their order, on the CPU
  Batch example{};                       // arguments of the program, as its nesting has them
  std::vector<std::size_t> used{};       // which of an example's tensors are inputs
};

// Runs the forward with batches made of `example` with all combinations of sizes and compares what it calls.
// `state` restores the model's values in between. `drops_unused_inputs`: tensors of the example that the
// forward does not use, such as labels, are no inputs. Throws Error for a forward that is no program.
RecordedModel recorded_model(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                             const ScopedModelState& state, const DynamicSizes& sizes,
                             bool drops_unused_inputs);

}  // namespace kindling
