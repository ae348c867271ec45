#pragma once

#include <vector>

#include "interop/export/dynamic_sizes.h"
#include "interop/export/forward_recording.h"

namespace kindling {

// Fuses the calls of C++ linear layers (t and addmm, or t, matmul and add_) into aten::linear.
void restore_linear(ForwardRecording& recording);

// Removes calls that no output depends on and that change no parameter or buffer, and unused constants.
void remove_dead_calls(ForwardRecording& recording);

// Merges recordings of the same forward pass with all combinations of dynamic sizes, in their order. Numbers
// that are polynomials in the sizes become numbers that the program computes; everything else must be the
// same. Throws Error with the operator, the layer and the difference.
ForwardRecording merged_recordings(const std::vector<ForwardRecording>& recordings,
                                   const DynamicSizes& sizes);

}  // namespace kindling
