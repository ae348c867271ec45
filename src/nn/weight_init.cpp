#include "kindling/nn/weight_init.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

namespace kindling {

void init_weights(WeightInit init, at::Tensor& weight, at::Tensor& bias) {
  const at::NoGradGuard no_grad;
  const auto receptive_field = static_cast<double>(weight[0][0].numel());
  const double fan_in = static_cast<double>(weight.size(1)) * receptive_field;
  const double fan_out = static_cast<double>(weight.size(0)) * receptive_field;
  const double kaiming = 1 / std::sqrt(fan_in);
  const double bound = init == WeightInit::xavier_uniform ? std::sqrt(6 / (fan_in + fan_out)) : kaiming;
  weight.uniform_(-bound, bound);
  if (bias.defined()) bias.uniform_(-kaiming, kaiming);
}

}  // namespace kindling
