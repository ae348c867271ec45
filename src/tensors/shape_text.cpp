#include "tensors/shape_text.h"

namespace kindling {

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const auto size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string type_text(const at::Tensor& tensor) {
  return c10::toString(tensor.scalar_type()) + (" " + shape_text(tensor));
}

}  // namespace kindling
