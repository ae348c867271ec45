#include "kindling/metrics/mean_error.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

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
  if (!options_.ignore_missing) {
    const at::Tensor of_sample = size.mean(1).to(at::kFloat).to(at::kDouble);
    return cut(at::stack({of_sample.mul(pair.weights), pair.weights}), kPartsOfNumbers).sum(2);
  }
  const at::Tensor is_missing = pair.labels.isnan(), numbers = is_missing.logical_not().sum(1);
  const at::Tensor mean = size.masked_fill(is_missing, 0).sum(1).div(numbers.clamp_min(1)),
                   of_sample = mean.to(at::kFloat).to(at::kDouble);
  // A sample counts with the part of its numbers that are not missing.
  const at::Tensor part = numbers.to(at::kDouble)
                              .div(static_cast<double>(std::max<std::int64_t>(size.size(1), 1))),
                   weight = pair.weights.mul(part);
  return cut(at::stack({of_sample.mul(weight), weight}), kPartsOfNumbers).sum(2);
}

double MeanError::compute(std::span<const double> sums, double) const {
  const std::vector<double> totals = sum_of_parts(sums, kPartsOfNumbers);
  const double mean = totals[0] / totals[1];
  return options_.error == "rmse" ? std::sqrt(mean) : mean;
}

}  // namespace kindling
