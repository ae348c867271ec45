#include "data/transforms/beta_quantiles.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <vector>

namespace kindling {
namespace {

constexpr int kCells = 4096;

// The continued fraction of the incomplete beta function by Lentz's method (Press et al., "Numerical
// Recipes", section 6.4). Converges quickly for x < (a + 1) / (2a + 2), that is x < 1/2.
double beta_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  const auto bounded = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / bounded(1 - 2 * a * x / (a + 1)), result = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (a - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / bounded(1 + even * d);
    c = bounded(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (2 * a + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / bounded(1 + odd * d);
    c = bounded(1 + odd / c);
    result *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return result;
}

// Returns the distribution function of Beta(a, a) at x in [0, 1/2].
double lower_half_cdf(double a, double x) {
  if (x <= 0) return 0;
  const double log_front = std::lgamma(2 * a) - 2 * std::lgamma(a) + a * std::log(x) + a * std::log1p(-x);
  return std::exp(log_front) * beta_fraction(a, x) / a;
}

// Returns x in [0, 1/2] with the probability p <= 1/2, to the precision of a double.
double lower_half_quantile(double a, double p) {
  // Bisection of the logarithm: for a small alpha, quantiles are as small as 1e-300.
  double low = -700, high = std::log(0.5);
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (lower_half_cdf(a, std::exp(middle)) < p ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

at::Tensor beta_table(double alpha) {
  std::vector<double> table(kCells + 1, 0.5);
  table[0] = 0;
  table[kCells] = 1;
  for (int i = 1; i < kCells / 2; ++i) {
    table[i] = lower_half_quantile(alpha, static_cast<double>(i) / kCells);
    table[kCells - i] = 1 - table[i];
  }
  return at::tensor(table, at::kDouble);
}

}  // namespace

BetaQuantiles::BetaQuantiles(double alpha)
    : is_uniform_(alpha == 1), table_(is_uniform_ ? at::empty({0}, at::kDouble) : beta_table(alpha)) {}

at::Tensor BetaQuantiles::operator()(const at::Tensor& uniforms) const {
  if (is_uniform_) return uniforms;
  const at::Tensor table = table_.like(uniforms);
  const at::Tensor position = uniforms * kCells;
  const at::Tensor cell = position.floor().clamp_max(kCells - 1);
  const at::Tensor index = cell.to(at::kLong).flatten();
  const at::Tensor below = table.index_select(0, index).view_as(cell);
  const at::Tensor above = table.index_select(0, index + 1).view_as(cell);
  return below + (position - cell) * (above - below);
}

}  // namespace kindling
