#pragma once

#include "programs/forward_recording.h"

namespace kindling {

// C++'s linear layers call t and addmm, or t, matmul and add_: gives aten::linear back.
void give_back_linear(ForwardRecording& recording);

// Takes out what no output hangs on and what moves no parameter and no buffer; with it constants that nobody
// asks for.
void remove_dead_calls(ForwardRecording& recording);

}  // namespace kindling
