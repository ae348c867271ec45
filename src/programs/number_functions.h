#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>

namespace kindling {

// What programs compute with sizes, on the host: integers, floats and booleans with Python's meaning.
using NumberFunction = c10::IValue (*)(std::span<const c10::IValue> arguments);

// That of "_operator.mul", "math.floor", "torch.sym_max", "torch.ops.aten.sym_size.int"; nullptr: there is
// none. It throws Error for arguments that it is not for.
NumberFunction number_function(std::string_view target);

}  // namespace kindling
