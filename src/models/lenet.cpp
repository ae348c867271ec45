#include "kindling/models/lenet.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"

namespace kindling {
namespace {

LazyConv2d convolution(std::int64_t channels, std::int64_t padding) {
  return LazyConv2d(LazyConv2dOptions{.out_channels = channels,
                                      .kernel_size = {5, 5},
                                      .padding = {padding, padding},
                                      .init = WeightInit::xavier_uniform});
}

LazyLinear dense(std::int64_t width) {
  return LazyLinear(LazyLinearOptions{.out_features = width, .init = WeightInit::xavier_uniform});
}

torch::nn::AvgPool2d halve() { return torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(2).stride(2)); }

}  // namespace

Lenet::Lenet(LenetOptions options)
    : SequentialNet(torch::nn::Sequential{convolution(6, 2), torch::nn::Sigmoid(), halve(),
                                          convolution(16, 0), torch::nn::Sigmoid(), halve(),
                                          torch::nn::Flatten(), dense(120), torch::nn::Sigmoid(), dense(84),
                                          torch::nn::Sigmoid(), dense(options.num_classes)}) {}

}  // namespace kindling
