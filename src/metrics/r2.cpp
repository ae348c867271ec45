#include "kindling/metrics/r2.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/nan_to_num.h>

#include <cmath>
#include <limits>
#include <utility>

#include "metrics/exact_sums.h"
#include "metrics/regression_pair.h"

namespace kindling {
namespace {

// Labels whose mean is 10⁷ times their standard deviation leave nothing of Σ y² − (Σ y)² / n in float64. So
// these sums have twice its precision: each number is the sum of a float64 and the rest, which rounding it
// would lose. The error-free sum and product are those of Knuth and Dekker (Dekker, "A Floating-Point
// Technique for Extending the Available Precision", 1971).
struct WideNumber {
  double value = 0, rest = 0;
};

WideNumber operator+(const WideNumber& a, const WideNumber& b) {
  const double sum = a.value + b.value, of_b = sum - a.value;
  const double rest = (a.value - (sum - of_b)) + (b.value - of_b) + (a.rest + b.rest);
  return {.value = sum + rest, .rest = rest - ((sum + rest) - sum)};
}

WideNumber operator*(const WideNumber& a, const WideNumber& b) {
  const double product = a.value * b.value;
  const double rest = std::fma(a.value, b.value, -product) + (a.value * b.rest + a.rest * b.value);
  return {.value = product + rest, .rest = rest - ((product + rest) - product)};
}

std::vector<WideNumber> wide_sums(std::span<const double> sums) {
  std::vector<WideNumber> cells(sums.size() / static_cast<std::size_t>(kPartsOfNumbers.count));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    WideNumber& cell = cells[i % cells.size()];
    cell = cell + WideNumber{.value = sums[i]};
  }
  return cells;
}

// The same of tensors, for a product that is rounded, and what rounding it has lost.
struct WideProduct {
  at::Tensor value, rest;
};

// Returns the upper half of the bits of each number, and the lower half.
std::pair<at::Tensor, at::Tensor> halves(const at::Tensor& numbers) {
  const at::Tensor scaled = numbers * 134217729.0;  // 2^27 + 1
  const at::Tensor upper = scaled - (scaled - numbers);
  return {upper, numbers - upper};
}

WideProduct product(const at::Tensor& a, const at::Tensor& b) {
  const auto [a_upper, a_lower] = halves(a);
  const auto [b_upper, b_lower] = halves(b);
  at::Tensor value = a * b;
  const at::Tensor rest =
      (((a_upper * b_upper - value) + a_upper * b_lower) + a_lower * b_upper) + a_lower * b_lower;
  return {.value = std::move(value), .rest = at::nan_to_num(rest, 0, 0, 0)};  // of numbers near 1e300
}

// The rounding error of Σ (y − mean)² for constant y, as a fraction of Σ y²: some units of 2^-104.
constexpr double kNothing = 1e-30;

struct OutputScore {
  double value = std::numeric_limits<double>::quiet_NaN();
  bool counts = true;  // in the mean
};

// `has_own_weights`: each output has its own sum of weights and its own number of labels.
std::vector<OutputScore> scores(std::span<const double> sums, double num_samples, bool has_own_weights) {
  const std::vector<WideNumber> totals = wide_sums(sums);
  const std::size_t num_outputs = totals.size() / (has_own_weights ? 5 : 3);
  const double lost = num_samples * std::exp2(kPartsOfNumbers.lowest + 2);  // below the lowest unit
  std::vector<OutputScore> scores;
  for (std::size_t i = 0; i < num_outputs; ++i) {
    const WideNumber& weight = has_own_weights ? totals[3 * num_outputs + i] : totals.back();
    const double num_labels = has_own_weights ? totals[4 * num_outputs + i].value : num_samples;
    OutputScore& score = scores.emplace_back(OutputScore{.counts = !has_own_weights || num_labels >= 2});
    const WideNumber &label = totals[i], square = totals[num_outputs + i] * weight;
    const double error = totals[2 * num_outputs + i].value;
    const double spread = (square + label * WideNumber{.value = -label.value, .rest = -label.rest}).value;
    if (num_labels < 2 || !std::isfinite(error)) continue;
    if (spread <= kNothing * square.value + lost * (weight.value + std::abs(label.value)))
      score.value = error == 0 ? 1 : 0;
    else
      score.value = 1 - error / (spread / weight.value);
  }
  return scores;
}

}  // namespace

R2::R2(R2Options options) : options_(std::move(options)) { validate(options_, "R2"); }

at::Tensor R2::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                               const at::Tensor& weights) const {
  RegressionPair pair = regression_pair("r2", outputs, labels, weights);
  at::Tensor weight = pair.weights.unsqueeze(1), errors = pair.outputs.sub(pair.labels).square();
  if (options_.ignore_missing) {
    const at::Tensor is_missing = pair.labels.isnan();
    weight = weight.mul(is_missing.logical_not());
    errors = errors.masked_fill(is_missing, 0);
    pair.labels = pair.labels.masked_fill(is_missing, 0);
  }
  const WideProduct square = product(pair.labels, pair.labels);
  const WideProduct weighted = product(at::cat({pair.labels, square.value}, 1),
                                       options_.ignore_missing ? at::cat({weight, weight}, 1) : weight);
  std::vector<at::Tensor> terms{weighted.value, errors.mul(weight), weight};
  if (options_.ignore_missing) terms.push_back(weight.gt(0).to(at::kDouble));
  at::Tensor sums = cut(at::cat(terms, 1), kPartsOfNumbers).sum(1);
  const std::int64_t num_outputs = errors.size(1);
  weighted.rest.narrow(1, num_outputs, num_outputs).addcmul_(square.rest, weight);
  sums.narrow(1, 0, 2 * num_outputs).add_(cut(weighted.rest, kPartsOfNumbers).sum(1));
  return sums;
}

double R2::compute(std::span<const double> sums, double num_samples) const {
  double sum = 0, count = 0;
  for (const OutputScore& score : scores(sums, num_samples, options_.ignore_missing))
    if (score.counts) sum += score.value, ++count;
  return sum / count;
}

NamedValues R2::values(std::span<const double> sums, double num_samples) const {
  if (options_.average != "per_output") return Metric::values(sums, num_samples);
  NamedValues values;
  for (const OutputScore& score : scores(sums, num_samples, options_.ignore_missing))
    values.emplace_back("[" + std::to_string(values.size()) + "]", score.value);
  return values;
}

}  // namespace kindling
