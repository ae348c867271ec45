#include "training/capture/captured_update.h"

#include <algorithm>

#include "optim/fused_rule.h"
#include "optim/optimizer_access.h"

namespace kindling {
namespace {

// True if all tensors are dense and on the device. A graph would see others as they were when it was
// recorded, or not at all.
bool are_dense_on(Device device, std::span<const at::Tensor> tensors) {
  return std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.device() == device;
  });
}

}  // namespace

void CapturedUpdate::measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
                             const std::function<void()>& work) {
  if (!are_dense_on(device_, optimizer.gradients()) || !are_dense_on(device_, losses)) return work();
  key_.clear();
  // Undefined gradients count too, because norms are logged by the position of the parameter.
  for (const at::Tensor& parameter : optimizer.parameters()) key_.add(parameter.grad());
  for (const at::Tensor& loss : losses) key_.add(loss);
  measured_.run(key_, work);
}

void CapturedUpdate::step(Optimizer& optimizer, const std::function<void()>& work) {
  if (!is_fused_rule(optimizer) || !are_dense_on(device_, optimizer.gradients())) return work();
  // Operators read a host tensor while recording, and the graph keeps the value that they have read.
  const auto& rates = OptimizerAccess::rates(optimizer);
  if (std::ranges::any_of(rates, [](auto& rate) { return rate.tensor.defined() && rate.tensor.is_cpu(); }))
    return work();
  key_.clear();
  for (const at::Tensor& parameter : optimizer.parameters()) {
    key_.add(parameter);
    key_.add(parameter.grad());
  }
  OptimizerAccess::for_each_state(optimizer, [&](const at::Tensor& tensor) { key_.add(tensor); });
  for (const auto& rate : rates) {
    key_.add(rate.tensor);
    if (!rate.tensor.defined()) key_.add(rate.number);
  }
  key_.add(optimizer.momentum());
  updated_.run(key_, work);
  // A graph writes to the gradients without raising their version.
  for (const at::Tensor& parameter : optimizer.parameters())
    if (parameter.grad().defined()) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace kindling
