#include "kindling/metrics/r2.h"

#include <ATen/ops/cat.h>

#include <cmath>
#include <limits>

#include "metrics/exact_sums.h"
#include "metrics/regression_pair.h"

namespace kindling {
namespace {

// The rounding error of Σ (y − mean)² for constant y, as a fraction of Σ y².
constexpr double kNothing = 1e-14;

std::vector<double> scores(std::span<const double> sums, double num_samples) {
  const std::vector<double> totals = sum_of_parts(sums, kPartsOfNumbers);
  const std::size_t num_outputs = totals.size() / 3;
  const double weight = totals.back();
  std::vector<double> scores;
  for (std::size_t i = 0; i < num_outputs; ++i) {
    const double label = totals[i], square = totals[num_outputs + i], error = totals[2 * num_outputs + i];
    const double spread = square - label * label / weight;
    if (num_samples < 2 || !std::isfinite(error))
      scores.push_back(std::numeric_limits<double>::quiet_NaN());
    else if (spread <= kNothing * square)
      scores.push_back(error == 0 ? 1 : 0);
    else
      scores.push_back(1 - error / spread);
  }
  return scores;
}

}  // namespace

R2::R2(R2Options options) : options_(std::move(options)) { validate(options_, "R2"); }

at::Tensor R2::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                               const at::Tensor& weights) const {
  const RegressionPair pair = regression_pair("r2", outputs, labels, weights);
  const at::Tensor weight = pair.weights.unsqueeze(1);
  const at::Tensor squares = pair.labels.square(), errors = pair.outputs.sub(pair.labels).square();
  const at::Tensor columns = at::cat({pair.labels, squares, errors}, 1).mul_(weight);
  return cut(at::cat({columns, weight}, 1), kPartsOfNumbers).sum(1);
}

double R2::compute(std::span<const double> sums, double num_samples) const {
  const std::vector<double> all = scores(sums, num_samples);
  double sum = 0;
  for (const double score : all) sum += score;
  return sum / static_cast<double>(all.size());
}

NamedValues R2::values(std::span<const double> sums, double num_samples) const {
  if (options_.average != "per_output") return Metric::values(sums, num_samples);
  NamedValues values;
  for (const double score : scores(sums, num_samples))
    values.emplace_back("[" + std::to_string(values.size()) + "]", score);
  return values;
}

}  // namespace kindling
