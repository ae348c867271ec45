#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"

namespace kindling {

// A layer: a module without submodules, with parameters of its own, or within a Sequential (a block).
struct LayerRow {
  std::string name;                                     // net.1
  std::string type;                                     // Linear
  std::vector<std::int64_t> input_shape, output_shape;  // empty if unknown
  std::int64_t num_parameters = 0;                      // its own; tied weights count in their first layer
  std::int64_t num_trainable = 0;                       // of them, those that are not frozen
  std::int64_t parameter_bytes = 0;                     // of all of them
  // Multiply-adds of one sample in a Linear or Conv1d, 2d or 3d, those with padding included; 0 for an
  // embedding and for layers without matrices; absent if the shapes or the kind of layer are unknown.
  std::optional<std::int64_t> multiply_adds = {};
};

// Runs one batch (on the model's device) without gradients and in evaluation mode, which also creates the
// parameters of lazy layers. Restores buffers and, if no layer was lazy, the random state. Returns the layers
// in registration order, with shapes if the only child is a Sequential. For a shape, see
// Classifier::layer_summary.
KINDLING_API std::vector<LayerRow> layer_summary(Module& model, const Batch& batch);

}  // namespace kindling
