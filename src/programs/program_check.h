#pragma once

#include <torch/nn/module.h>

#include "formats/pt2_file.h"
#include "programs/model_as_it_was.h"
#include "programs/recorded_model.h"

namespace kindling {

struct ProgramCheck {
  torch::nn::Module& model;
  const BatchFunction& forward;
  const Batch& example;
  const ModelAsItWas& state;
  const RecordedModel& recorded;
  const DynamicSizes& sizes;
  bool train = false;
};

// Runs the program of a file and the model, with sizes that have not been recorded, and compares
// outputs and buffers, in training mode gradients too. Throws Error where they differ.
void require_same_as_model(const Pt2File& file, const ProgramCheck& check);

}  // namespace kindling
