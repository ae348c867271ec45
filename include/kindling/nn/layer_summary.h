#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"

namespace kindling {

// A layer: what holds no other layers, has parameters of its own, or stands in a Sequential (a block).
struct LayerRow {
  std::string name;                                     // net.1
  std::string type;                                     // Linear
  std::vector<std::int64_t> input_shape, output_shape;  // empty where they cannot be told
  std::int64_t num_parameters = 0;                      // its own, not those of layers inside
};

// Runs one batch (on the model's device) through the model, without gradients and in evaluation mode, which
// also gives lazy layers their parameters, and lists the layers in the order of their registration. Shapes
// are told for the layers of a model whose one child is a Sequential. For a shape alone see
// Classifier::layer_summary.
KINDLING_API std::vector<LayerRow> layer_summary(Module& model, const Batch& batch);

}  // namespace kindling
