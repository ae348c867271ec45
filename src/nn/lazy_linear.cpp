#include "kindling/nn/lazy_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <ostream>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"

namespace kindling {

LazyLinearImpl::LazyLinearImpl(LazyLinearOptions options) : options_(options) {
  if (options_.out_features < 1)
    throw ConfigError({.place = "LazyLinear",
                       .found = "out_features is " + std::to_string(options_.out_features),
                       .wanted = "at least 1"});
}

at::Tensor LazyLinearImpl::forward(const at::Tensor& input) {
  if (!weight.defined()) materialize(input.size(-1), input.device());
  return at::linear(input, weight, bias);
}

void LazyLinearImpl::materialize(std::int64_t in_features, at::Device device) {
  at::Tensor made_weight = at::empty({options_.out_features, in_features}, at::kFloat), made_bias;
  if (options_.bias) made_bias = at::empty({options_.out_features}, at::kFloat);
  init_weights(options_.init, made_weight, made_bias);
  weight = register_parameter("weight", move_to(made_weight, device));
  if (options_.bias) bias = register_parameter("bias", move_to(made_bias, device));
}

void LazyLinearImpl::materialize_like(const at::Tensor& like) {
  if (like.dim() == 2) materialize(like.size(1), cpu());
}

void LazyLinearImpl::dematerialize() {
  parameters_.clear();
  weight = bias = at::Tensor();
}

// Called by clone() on a copy whose registrations are gone: makes them anew, the values are copied
// afterwards.
void LazyLinearImpl::reset() {
  if (weight.defined()) materialize(weight.size(1), weight.device());
}

void LazyLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "kindling::LazyLinear(" << options_.out_features << ")";
}

}  // namespace kindling
