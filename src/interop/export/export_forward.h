#pragma once

#include <torch/nn/module.h>

#include "kindling/interop/export_program.h"

namespace kindling {

// Exports the forward that `forward` runs; see export_program(). `drops_unused_inputs`: tensors of the
// example that it does not use, such as labels, do not become inputs. Ignores `values` and `input_transform`.
void export_forward(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                    const ExportOptions& options, bool drops_unused_inputs);

}  // namespace kindling
