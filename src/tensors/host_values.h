#pragma once

#include "kindling/device/device.h"
#include "kindling/tensors/move.h"

namespace kindling {

// Returns true if the bytes of the tensor are its values: it is contiguous, on the host, and not a lazy
// conjugate or negative view.
inline bool has_plain_bytes(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Returns the values as a tensor that has_plain_bytes(), as writers of files need them.
inline at::Tensor host_values(const at::Tensor& tensor) {
  return move_to(tensor.detach(), cpu()).resolve_conj().resolve_neg().contiguous();
}

}  // namespace kindling
