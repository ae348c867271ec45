#include "kindling/models/softmax_regression.h"

#include <torch/nn/modules/linear.h>

#include "kindling/nn/lazy_linear.h"

namespace kindling {

SoftmaxRegression::SoftmaxRegression(SoftmaxRegressionOptions options)
    : SequentialNet(torch::nn::Sequential{torch::nn::Flatten(), LazyLinear(options.num_classes)}) {}

}  // namespace kindling
