#include "tensors/run_difference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace kindling {
namespace {

// Resolves conjugate and negative bits, which prevent viewing a tensor as another type.
at::Tensor real_numbers(const at::Tensor& tensor) {
  const at::Tensor values = tensor.resolve_conj().resolve_neg();
  return values.is_complex() ? at::view_as_real(values) : values;
}

}  // namespace

at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor values = real_numbers(tensor);
  switch (values.element_size()) {
    case 1:
      return values.view(at::kByte);
    case 2:
      return values.view(at::kShort);
    case 4:
      return values.view(at::kInt);
    default:
      return values.view(at::kLong);
  }
}

namespace {

at::Tensor largest_of(const at::Tensor& numbers) {
  return at::where(at::isfinite(numbers), numbers, 0).abs().amax();
}

// `allowed`: a scalar.
at::Tensor differs_by_more(const at::Tensor& one, const at::Tensor& other, const at::Tensor& allowed) {
  const at::Tensor are_same = one.eq(other).logical_or(at::isnan(one).logical_and(at::isnan(other)));
  const at::Tensor are_close =
      (one - other).abs().le(allowed).logical_and(at::isfinite(one)).logical_and(at::isfinite(other));
  return at::any(are_same.logical_or(are_close).logical_not());
}

}  // namespace

RunTolerance tolerance_of(std::string_view precision, bool shortens_products) {
  if (precision == "64-true" || (precision == "32-true" && !shortens_products))
    return {.relative = 1e-3, .of_all = 1e-5};
  return {.relative = 2e-2, .of_all = 1e-3};
}

at::Tensor differ(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others,
                  const std::vector<bool>& are_gradients, RunTolerance tolerance) {
  std::vector<at::Tensor> answers;
  std::vector<std::size_t> close;  // indices of the tensors with a tolerance
  for (std::size_t i = 0; i < ones.size(); ++i) {
    if (!ones[i].defined() || ones[i].numel() == 0) continue;
    const bool is_exact = tolerance.relative == 0 || !(ones[i].is_floating_point() || ones[i].is_complex());
    if (is_exact)
      answers.push_back(at::any(at::ne(bits_of(ones[i]), bits_of(others[i]))));
    else
      close.push_back(i);
  }
  std::vector<at::Tensor> sizes, of_gradients;
  for (const std::size_t i : close) {
    sizes.push_back(largest_of(real_numbers(others[i])).to(at::kDouble));
    if (are_gradients[i]) of_gradients.push_back(sizes.back());
  }
  const at::Tensor largest = of_gradients.empty() ? at::Tensor() : at::stack(of_gradients).amax();
  for (std::size_t place = 0; place < close.size(); ++place) {
    const std::size_t i = close[place];
    at::Tensor allowed = sizes[place] * tolerance.relative;
    if (are_gradients[i]) allowed = allowed + largest * tolerance.of_all;
    answers.push_back(differs_by_more(real_numbers(ones[i]).to(at::kDouble),
                                      real_numbers(others[i]).to(at::kDouble), allowed));
  }
  return at::any(at::stack(answers));
}

}  // namespace kindling
