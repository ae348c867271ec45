#pragma once

#include <c10/core/DeviceType.h>

#include <array>
#include <cstdint>

namespace kindling {

// The settings of LibTorch, of this thread and of the process, that change what its operators compute on such
// a device or how: autocast, grad and inference mode, the thread's dispatch keys (including modes that other
// code has pushed), the default dtype, deterministic algorithms, the precision of float32 matmuls and
// convolutions, the enabled backends, the number of threads.
using OperatorSettings = std::array<std::uint64_t, 7>;
OperatorSettings operator_settings(c10::DeviceType device);

}  // namespace kindling
