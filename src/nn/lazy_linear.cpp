#include "kindling/nn/lazy_linear.h"

#include <ATen/ops/linear.h>

#include <ostream>

#include "kindling/base/error.h"

namespace kindling {

LazyLinearImpl::LazyLinearImpl(LazyLinearOptions options)
    : LazyWeights({options.out_features, 0}, options.bias, options.init), options_(options) {
  if (options_.out_features < 1)
    throw ConfigError({.place = "LazyLinear",
                       .found = "out_features is " + std::to_string(options_.out_features),
                       .wanted = "at least 1"});
}

at::Tensor LazyLinearImpl::forward(const at::Tensor& input) {
  if (!is_materialized()) materialize(input.size(-1), input.device());
  return at::linear(input, weight, bias);
}

void LazyLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "kindling::LazyLinear(" << options_.out_features << ")";
}

}  // namespace kindling
