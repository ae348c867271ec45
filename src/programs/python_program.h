#pragma once

#include <string>
#include <vector>

#include "formats/exported_program.h"
#include "programs/dynamic_sizes.h"
#include "programs/forward_recording.h"

namespace kindling {

// What a program is called with and gives, and what its weights are named.
struct ProgramFrame {
  std::vector<ProgramInput> weights{};     // kinds and names; those of the recording, in its order
  std::vector<std::string> input_names{};  // of the recording's inputs
  std::vector<std::string> arguments{};    // of the forward function's arguments
  ProgramTree in{}, out{};                 // as ExportedProgram has them
};

// A recording as torch.export writes programs: without arguments that are the schema's defaults, with numbers
// in front that are computed of the dynamic sizes, and with Python's names ("linear_1", "p_net_0_weight").
ExportedProgram python_program(const ForwardRecording& recording, const ProgramFrame& frame,
                               const DynamicSizes& sizes);

}  // namespace kindling
