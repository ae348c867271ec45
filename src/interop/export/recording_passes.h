#pragma once

#include <vector>

#include "programs/dynamic_sizes.h"
#include "programs/forward_recording.h"

namespace kindling {

// One program of recordings of the same forward with all combinations of dynamic sizes, in their order: what
// is a polynomial of the sizes becomes a number that the program computes, everything else has to be the
// same. Throws Error that names the operator, the layer and what differs.
ForwardRecording merged_recordings(const std::vector<ForwardRecording>& recordings,
                                   const DynamicSizes& sizes);

}  // namespace kindling
