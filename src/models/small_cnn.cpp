#include "kindling/models/small_cnn.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"

namespace kindling {

SmallCnn::SmallCnn(SmallCnnOptions options) : SequentialNet(torch::nn::Sequential()) {
  validate(options, "small_cnn");
  for (const std::int64_t channels : options.channels) {
    // The following batch normalization has its own shift.
    net->push_back(LazyConv2d(LazyConv2dOptions{.out_channels = channels, .padding = {1, 1}, .bias = false}));
    net->push_back(torch::nn::BatchNorm2d(channels));
    net->push_back(torch::nn::ReLU());
  }
  net->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2)));
  net->push_back(torch::nn::Flatten());
  net->push_back(LazyLinear(options.hidden));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Dropout(options.dropout));
  net->push_back(LazyLinear(options.num_classes));
}

}  // namespace kindling
