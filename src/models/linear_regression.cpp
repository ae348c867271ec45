#include "kindling/models/linear_regression.h"

#include "kindling/nn/lazy_linear.h"

namespace kindling {

LinearRegression::LinearRegression(LinearRegressionOptions options)
    : RegressionNet(torch::nn::Sequential{LazyLinear(options.num_outputs)}, "LinearRegression",
                    RegressorOptions{.num_targets = options.num_outputs,
                                     .scale_target = options.scale_target,
                                     .ignore_missing = options.ignore_missing}) {}

}  // namespace kindling
