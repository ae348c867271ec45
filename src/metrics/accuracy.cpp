#include "kindling/metrics/accuracy.h"

#include <ATen/core/grad_mode.h>

namespace kindling {

at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  return outputs.argmax(1).eq(labels).to(at::kFloat).mean();
}

}  // namespace kindling
