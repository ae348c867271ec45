#include "optim/device_rates.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "optim/fused_rule.h"
#include "optim/optimizer_access.h"

namespace kindling {
namespace {

// A sparse gradient's rows are multiplied by the rate in their own type.
bool reads_float32_on_device(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return !parameter.is_cpu() && parameter.scalar_type() != at::kDouble &&
         (!gradient.defined() || !gradient.is_sparse());
}

}  // namespace

DeviceRates::Scope::Scope(DeviceRates& rates, Optimizer& optimizer) : optimizer_(optimizer) {
  if (!is_fused_rule(optimizer) || !std::ranges::all_of(optimizer.parameters(), reads_float32_on_device))
    return;
  const at::NoGradGuard no_grad;
  const auto options = optimizer.parameters().front().options().dtype(at::kFloat);
  std::vector<Rate>& kept = rates.rates_;
  std::vector<OptimizerAccess::LearningRate>& groups = OptimizerAccess::rates(optimizer);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    auto& [number, tensor] = groups[group];
    if (group == kept.size()) kept.push_back({at::full({}, number, options), number});
    if (tensor.defined()) continue;
    if (std::exchange(kept[group].number, number) != number) kept[group].tensor.fill_(number);
    tensor = kept[group].tensor;
    given_.push_back(group);
  }
}

DeviceRates::Scope::~Scope() {
  for (const std::size_t group : given_) OptimizerAccess::rates(optimizer_)[group].tensor.reset();
}

}  // namespace kindling
