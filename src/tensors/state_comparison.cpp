#include "kindling/tensors/state_comparison.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "kindling/tensors/move.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

constexpr std::int64_t kNumbers = 3;  // of a tensor, below

// [max |a - b|, max |a - b| / max(|a|, |b|), elements beyond the tolerance] on a's device.
at::Tensor differences_of(const at::Tensor& a, const at::Tensor& b, const Tolerance& tolerance) {
  const auto on_device = at::device(a.device()).dtype(at::kDouble);
  if (a.numel() == 0) return at::zeros({kNumbers}, on_device);
  const at::ScalarType type = a.scalar_type();
  const at::ScalarType wide = at::isIntegralType(type, /*includeBool=*/true) ? at::kLong
                              : at::isComplexType(type)                      ? at::kComplexDouble
                                                                             : at::kDouble;
  const at::Tensor x = a.to(wide), y = move_to(b, a.device()).to(wide);
  const at::Tensor is_same = x.eq(y).logical_or_(x.ne(x).logical_and_(y.ne(y)));  // NaN is not itself
  const double infinity = std::numeric_limits<double>::infinity();
  const auto distances = [&](const at::Tensor& distance) {
    return distance.nan_to_num(infinity, infinity).masked_fill(is_same, 0.0);
  };
  const at::Tensor distance = distances(x.sub(y).abs().to(at::kDouble));
  const at::Tensor size = at::maximum(x.abs(), y.abs()).to(at::kDouble);
  // An infinite distance is beyond any tolerance, also beyond an infinite one.
  const at::Tensor is_beyond =
      distance.gt(size.mul(tolerance.relative).add(tolerance.absolute)).logical_or_(distance.isinf());
  return at::stack({distance.max(), distances(distance.div(size)).max(), is_beyond.sum().to(at::kDouble)});
}

void read_differences(const std::vector<at::Tensor>& numbers,
                      std::vector<StateComparison::Difference>& differences) {
  if (numbers.empty()) return;
  std::vector<at::Tensor> together;
  for (const at::Tensor& tensor : numbers) together.push_back(move_to(tensor, numbers.front().device()));
  const at::Tensor on_host = move_to(at::stack(together), cpu());
  const double* value = on_host.const_data_ptr<double>();
  for (auto& difference : differences) {
    difference.max_absolute = *value++;
    difference.max_relative = *value++;
    difference.num_different = static_cast<std::int64_t>(*value++);
  }
}

}  // namespace

StateComparison compare(const StateDict& a, const StateDict& b, const Tolerance& tolerance) {
  const at::NoGradGuard no_grad;
  StateComparison comparison;
  std::vector<at::Tensor> numbers;
  for (const auto& [name, tensor] : a.tensors) {
    const at::Tensor* other = b.find(name);
    if (other == nullptr) {
      comparison.only_in_a.push_back(name);
    } else if (type_text(tensor) != type_text(*other)) {
      comparison.misfits.push_back({name, type_text(tensor), type_text(*other)});
    } else {
      comparison.differences.push_back({name, 0, 0, 0});
      numbers.push_back(differences_of(tensor, *other, tolerance));
    }
  }
  for (const auto& [name, tensor] : b.tensors)
    if (a.find(name) == nullptr) comparison.only_in_b.push_back(name);
  read_differences(numbers, comparison.differences);
  return comparison;
}

StateComparison compare(const torch::nn::Module& a, const torch::nn::Module& b, const Tolerance& tolerance) {
  return compare(state_dict(a), state_dict(b), tolerance);
}

bool StateComparison::is_equal(double tolerance) const {
  return only_in_a.empty() && only_in_b.empty() && misfits.empty() &&
         std::ranges::all_of(differences, [&](const Difference& d) { return d.max_absolute <= tolerance; });
}

std::string StateComparison::text() const {
  std::vector<Difference> unequal;
  for (const Difference& difference : differences)
    if (difference.max_absolute > 0) unequal.push_back(difference);
  std::ranges::stable_sort(unequal, std::ranges::greater{}, &Difference::max_absolute);
  std::ostringstream text;
  text << differences.size() << " tensors compared, " << unequal.size() << " different";
  for (const Difference& d : unequal)
    text << "\n  " << d.name << ": max |a - b| " << d.max_absolute << ", relative " << d.max_relative;
  for (const Misfit& misfit : misfits)
    text << "\n  " << misfit.name << ": " << misfit.in_a << " in a, " << misfit.in_b << " in b";
  for (const std::string& name : only_in_a) text << "\n  " << name << ": only in a";
  for (const std::string& name : only_in_b) text << "\n  " << name << ": only in b";
  return text.str();
}

}  // namespace kindling
