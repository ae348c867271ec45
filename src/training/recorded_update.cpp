#include "training/recorded_update.h"

#include <algorithm>
#include <typeinfo>

#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"

namespace kindling {
namespace {

bool are_dense(std::span<const at::Tensor> gradients) {
  return std::ranges::all_of(gradients,
                             [](const at::Tensor& gradient) { return gradient.layout() == at::kStrided; });
}

// Not what derives from them, which may count on the host.
bool is_fused(const Optimizer& optimizer) {
  const std::type_info& rule = typeid(optimizer);
  return rule == typeid(Adam) || rule == typeid(AdamW) || rule == typeid(Sgd);
}

}  // namespace

void RecordedUpdate::measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
                             const std::function<void()>& work) {
  const std::span<const at::Tensor> gradients = optimizer.gradients();
  if (!are_dense(gradients)) return work();
  WorkKey key;
  for (const at::Tensor& gradient : gradients) key.add(gradient);
  for (const at::Tensor& loss : losses) key.add(loss);
  measured_.run(key, work);
}

void RecordedUpdate::step(Optimizer& optimizer, const std::function<void()>& work) {
  if (!is_fused(optimizer) || !are_dense(optimizer.gradients())) return work();
  WorkKey key;
  for (const at::Tensor& parameter : optimizer.parameters_) {
    key.add(parameter);
    key.add(parameter.grad());
  }
  for (const auto& state : optimizer.states_)
    for (const at::Tensor& tensor : state.tensors) key.add(tensor);
  for (const auto& rate : optimizer.rates_) {
    key.add(rate.number);
    key.add(rate.tensor);
  }
  key.add(optimizer.momentum());
  updated_.run(key, work);
  // A graph writes to them and does not say so.
  for (const at::Tensor& parameter : optimizer.parameters_) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace kindling
