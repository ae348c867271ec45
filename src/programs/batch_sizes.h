#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "programs/forward_recording.h"

namespace kindling {

// One program of recordings of the same forward at other batch sizes B: what is a·B + b in all of them
// becomes a number that the program computes, everything else has to be the same. At least three sizes, as a
// line goes through any two. Equal sizes: nothing may differ. Throws Error that names the operator, the layer
// and what differs.
ForwardRecording merged_recordings(const std::vector<ForwardRecording>& recordings,
                                   const std::vector<std::int64_t>& batch_sizes);

}  // namespace kindling
