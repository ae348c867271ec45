#include "kindling/models/linear_regression.h"

#include "kindling/nn/lazy_linear.h"

namespace kindling {

LinearRegression::LinearRegression(LinearRegressionOptions options)
    : RegressionNet(torch::nn::Sequential{LazyLinear(options.num_outputs)}, "LinearRegression",
                    options.num_outputs, options.scale_target) {}

}  // namespace kindling
