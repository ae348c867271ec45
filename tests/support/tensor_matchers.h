#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <sstream>

namespace kindling {

// Same dtype, shape and values, on any device.
inline testing::AssertionResult same(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.detach().cpu(), b = expected.detach().cpu();
  if (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.equal(b))
    return testing::AssertionSuccess();
  std::ostringstream text;
  text << "actual " << a << "\nexpected " << b;
  return testing::AssertionFailure() << text.str();
}

// |actual - expected| <= tolerance · (1 + |expected|), element by element.
inline testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected,
                                      double tolerance) {
  const at::Tensor a = actual.detach().cpu(), b = expected.detach().cpu();
  if (a.sizes() == b.sizes() && a.allclose(b.to(a.scalar_type()), tolerance, tolerance))
    return testing::AssertionSuccess();
  std::ostringstream text;
  text << "actual " << a << "\nexpected " << b;
  if (a.sizes() == b.sizes()) text << "\nlargest difference " << (a - b).abs().max();
  return testing::AssertionFailure() << text.str();
}

// Exact on the CPU and on the fake accelerator, which uses the CPU's kernels; GPU operators round
// differently.
inline testing::AssertionResult same_on_cpu(const at::Tensor& actual, const at::Tensor& expected) {
  return actual.device().is_cuda() ? close(actual, expected, 1e-5) : same(actual, expected);
}

}  // namespace kindling
