#include "kindling/nn/lazy_conv2d.h"

#include <ATen/ops/conv2d.h>

#include <ostream>

#include "kindling/base/error.h"

namespace kindling {

LazyConv2dImpl::LazyConv2dImpl(LazyConv2dOptions options)
    : LazyWeights({options.out_channels, 0, options.kernel_size[0], options.kernel_size[1]}, options.bias,
                  options.init),
      options_(options) {
  const auto [height, width] = options_.kernel_size;
  if (options_.out_channels < 1 || height < 1 || width < 1)
    throw ConfigError({.place = "LazyConv2d",
                       .found = std::to_string(options_.out_channels) + " channels, kernel " +
                                std::to_string(height) + " x " + std::to_string(width),
                       .wanted = "at least 1 of each"});
}

at::Tensor LazyConv2dImpl::forward(const at::Tensor& input) {
  if (!is_materialized()) materialize(input.size(1), input.device());
  return at::conv2d(input, weight, bias, options_.stride, options_.padding);
}

void LazyConv2dImpl::pretty_print(std::ostream& stream) const {
  stream << "kindling::LazyConv2d(" << options_.out_channels << ", kernel_size=[" << options_.kernel_size[0]
         << ", " << options_.kernel_size[1] << "])";
}

}  // namespace kindling
