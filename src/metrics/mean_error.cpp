#include "kindling/metrics/mean_error.h"

#include <ATen/ops/stack.h>

#include <cmath>

#include "metrics/exact_sums.h"
#include "metrics/regression_pair.h"

namespace kindling {

MeanError::MeanError(MeanErrorOptions options) : options_(std::move(options)) {
  validate(options_, "MeanError");
}

// A sample's mean is rounded, because a device may sum its numbers in another order in a batch of another
// size.
at::Tensor MeanError::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                      const at::Tensor& weights) const {
  const RegressionPair pair = regression_pair(options_.error.c_str(), outputs, labels, weights);
  const at::Tensor error = pair.outputs.sub(pair.labels);
  const at::Tensor size = options_.error == "mae" ? error.abs() : error.square();
  const at::Tensor of_sample = size.mean(1).to(at::kFloat).to(at::kDouble);
  return cut(at::stack({of_sample.mul(pair.weights), pair.weights}), kPartsOfNumbers).sum(2);
}

double MeanError::compute(std::span<const double> sums, double) const {
  const std::vector<double> totals = sum_of_parts(sums, kPartsOfNumbers);
  const double mean = totals[0] / totals[1];
  return options_.error == "rmse" ? std::sqrt(mean) : mean;
}

}  // namespace kindling
