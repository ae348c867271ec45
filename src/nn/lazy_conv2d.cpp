#include "kindling/nn/lazy_conv2d.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>

#include <ostream>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"

namespace kindling {

LazyConv2dImpl::LazyConv2dImpl(LazyConv2dOptions options) : options_(options) {
  const auto [height, width] = options_.kernel_size;
  if (options_.out_channels < 1 || height < 1 || width < 1)
    throw ConfigError({.place = "LazyConv2d",
                       .found = std::to_string(options_.out_channels) + " channels, kernel " +
                                std::to_string(height) + " x " + std::to_string(width),
                       .wanted = "at least 1 of each"});
}

at::Tensor LazyConv2dImpl::forward(const at::Tensor& input) {
  if (!weight.defined()) materialize(input.size(1), input.device());
  return at::conv2d(input, weight, bias, options_.stride, options_.padding);
}

void LazyConv2dImpl::materialize(std::int64_t in_channels, at::Device device) {
  const auto [height, width] = options_.kernel_size;
  at::Tensor made_weight = at::empty({options_.out_channels, in_channels, height, width}, at::kFloat),
             made_bias;
  if (options_.bias) made_bias = at::empty({options_.out_channels}, at::kFloat);
  init_weights(options_.init, made_weight, made_bias);
  weight = register_parameter("weight", move_to(made_weight, device));
  if (options_.bias) bias = register_parameter("bias", move_to(made_bias, device));
}

void LazyConv2dImpl::materialize_like(const at::Tensor& like) {
  if (like.dim() == 4) materialize(like.size(1), cpu());
}

void LazyConv2dImpl::dematerialize() {
  parameters_.clear();
  weight = bias = at::Tensor();
}

// Called by clone() on a copy whose registrations are gone: makes them anew, the values are copied
// afterwards.
void LazyConv2dImpl::reset() {
  if (weight.defined()) materialize(weight.size(1), weight.device());
}

void LazyConv2dImpl::pretty_print(std::ostream& stream) const {
  stream << "kindling::LazyConv2d(" << options_.out_channels << ", kernel_size=[" << options_.kernel_size[0]
         << ", " << options_.kernel_size[1] << "])";
}

}  // namespace kindling
