#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "formats/program_weight.h"
#include "kindling/programs/export_program.h"
#include "kindling/tensors/batch.h"
#include "programs/model_as_it_was.h"

namespace kindling {

struct RecordingOptions {
  bool dynamic_batch = true;
  bool drops_unused_inputs = false;  // tensors of the example that the forward does not use, such as labels
};

// A model's forward as a program, with what its weights are: the one thing that files are written of.
struct RecordedModel {
  ExportedProgram program{};
  std::vector<ProgramWeight> weights{};  // with the constants
  std::vector<at::Tensor> tensors{};     // of the weights, in their order, on the CPU
  Batch example{};                       // arguments of the program, as its nesting has them
  std::vector<std::size_t> used{};       // which of an example's tensors are inputs
};

// Runs the forward with batches made of `example` (samples repeated or left out along dimension 0) and
// compares what it calls. `state` keeps the model as it was. Throws Error for a forward that is no program.
RecordedModel recorded_model(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                             const ModelAsItWas& state, const RecordingOptions& options);

// A batch of `size` samples of the example, from sample number `first` on, again and again; tensors that have
// another length along dimension 0 than the first one stay as they are. All are copies.
Batch resized_example(const Batch& example, std::int64_t size, std::int64_t first);

}  // namespace kindling
