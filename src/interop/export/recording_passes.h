#pragma once

#include <vector>

#include "interop/export/dynamic_sizes.h"
#include "interop/export/forward_recording.h"

namespace kindling {

// C++'s linear layers call t and addmm, or t, matmul and add_: gives aten::linear back.
void restore_linear(ForwardRecording& recording);

// Takes out what no output hangs on and what moves no parameter and no buffer; with it constants that nobody
// asks for.
void remove_dead_calls(ForwardRecording& recording);

// One program of recordings of the same forward with all combinations of dynamic sizes, in their order: what
// is a polynomial of the sizes becomes a number that the program computes, everything else has to be the
// same. Throws Error that names the operator, the layer and what differs.
ForwardRecording merged_recordings(const std::vector<ForwardRecording>& recordings,
                                   const DynamicSizes& sizes);

}  // namespace kindling
