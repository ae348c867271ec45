#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "kindling_c.h"

namespace kindling::bindings {

// The dtypes of converted arrays: `floats` for floating-point numbers, and for integers of inputs if
// `converts_integers`; int64 for integers of targets.
struct ArrayUse {
  at::ScalarType floats = at::kFloat;
  bool is_target = false, converts_integers = false;
};

// The name of an array in errors: "inputs[0]".
struct ArrayName {
  const char* argument;
  std::optional<std::size_t> index{};

  std::string text() const;
};

// Returns tensors on the memory of the arrays, or copies where strides or dtype require one, which it counts.
// `argument` names the arrays. Throws StatusError.
std::vector<at::Tensor> tensors_of(const kindling_array* arrays, std::size_t count, const ArrayUse& use,
                                   const char* place, const char* argument);
// Returns a tensor on the memory of one array, in its own dtype; with `is_output`, never a copy. A negative
// stride of other arrays is copied.
at::Tensor view_of(const kindling_array& array, bool is_output, const char* place, const ArrayName& name);

// The dtype of the interface that corresponds to LibTorch's; 0: there is none.
int32_t dtype_of(at::ScalarType type) noexcept;
// "[2, 3]"
std::string shape_of(at::IntArrayRef sizes);

kindling_array_counts& array_counts() noexcept;  // of this thread

}  // namespace kindling::bindings
