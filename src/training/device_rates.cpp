#include "training/device_rates.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

namespace kindling {
namespace {

bool reads_float32_on_device(const Optimizer& optimizer) {
  return optimizer.takes_tensors() &&
         std::ranges::none_of(optimizer.parameters(), [](const at::Tensor& parameter) {
           return parameter.is_cpu() || parameter.scalar_type() == at::kDouble;
         });
}

}  // namespace

DeviceRates::Scope::Scope(DeviceRates& rates, Optimizer& optimizer) : optimizer_(optimizer) {
  if (!reads_float32_on_device(optimizer)) return;
  const at::NoGradGuard no_grad;
  const auto options = optimizer.parameters().front().options().dtype(at::kFloat);
  std::vector<Rate>& kept = rates.rates_[&optimizer];
  for (std::size_t group = 0; group < optimizer.rates_.size(); ++group) {
    auto& [number, tensor] = optimizer.rates_[group];
    if (group == kept.size()) kept.push_back({at::full({}, number, options), number});
    if (tensor.defined()) continue;
    if (std::exchange(kept[group].number, number) != number) kept[group].tensor.fill_(number);
    tensor = kept[group].tensor;
    given_.push_back(group);
  }
}

DeviceRates::Scope::~Scope() {
  for (const std::size_t group : given_) optimizer_.rates_[group].tensor.reset();
}

}  // namespace kindling
