#include "kindling/nn/softmax_regression.h"

#include <torch/nn/modules/linear.h>

#include "kindling/nn/lazy_linear.h"

namespace kindling {

SoftmaxRegression::SoftmaxRegression(SoftmaxRegressionOptions options)
    : net(register_module("net",
                          torch::nn::Sequential{torch::nn::Flatten(), LazyLinear(options.num_classes)})) {}

at::Tensor SoftmaxRegression::forward(const at::Tensor& inputs) { return net->forward(inputs); }

}  // namespace kindling
