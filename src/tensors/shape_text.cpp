#include "tensors/shape_text.h"

namespace kindling {

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (const auto size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace kindling
