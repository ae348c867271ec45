#include "training/parallel/optimizer_shards.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "kindling/base/error.h"
#include "optim/sharded_state.h"

namespace kindling {

namespace {

// Above this size a copy costs more than a message.
constexpr std::size_t kLargestPacked_bytes = 64 << 10;

bool travels_alone(const at::Tensor& parameter) {
  return parameter.nbytes() > kLargestPacked_bytes && parameter.is_non_overlapping_and_dense();
}

// Returns the numbers of a parameter in memory order.
at::Tensor flat_view(const at::Tensor& parameter) {
  return parameter.detach().as_strided({parameter.numel()}, {1});
}

void copy_parts(const at::Tensor& packed, const std::vector<at::Tensor>& parameters, bool out_of) {
  std::int64_t at = 0;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor part = packed.narrow(0, at, parameter.numel()).view(parameter.sizes());
    out_of ? parameter.detach().copy_(part) : part.copy_(parameter);
    at += parameter.numel();
  }
}

// Hides the gradients of other ranks' parameters from the optimizer while it exists.
class HiddenGradients {
 public:
  HiddenGradients(std::vector<at::Tensor>& parameters, const std::vector<std::int64_t>& owners,
                  std::int64_t rank)
      : parameters_(parameters), kept_(parameters.size()) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (owners[i] != rank) std::swap(kept_[i], parameters[i].mutable_grad());
  }
  ~HiddenGradients() {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (kept_[i].defined()) parameters_[i].mutable_grad() = kept_[i];
  }
  HiddenGradients(const HiddenGradients&) = delete;
  HiddenGradients& operator=(const HiddenGradients&) = delete;

 private:
  std::vector<at::Tensor>& parameters_;
  std::vector<at::Tensor> kept_;
};

}  // namespace

void OptimizerShard::plan(ProcessGroup& group, Optimizer& optimizer) {
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  if (std::ranges::equal(parameters_, optimizer.parameters(), is_same)) return;
  drop_foreign_state(optimizer, group);
  parameters_ = optimizer.parameters();
  owners_ = owners_of(parameters_, group.size());
  transfers_.clear();
  using Kind = std::pair<std::int64_t, at::ScalarType>;
  std::map<Kind, std::vector<at::Tensor>> small;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    if (parameter.numel() == 0) continue;
    if (travels_alone(parameter))
      transfers_.push_back({owners_[i], {parameter}, {}});
    else
      small[{owners_[i], parameter.scalar_type()}].push_back(parameter);
  }
  for (auto& [kind, parameters] : small) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : parameters) count += parameter.numel();
    const at::Tensor packed = at::empty({count}, parameters.front().options().requires_grad(false));
    transfers_.push_back({kind.first, std::move(parameters), packed});
  }
}

void OptimizerShard::step(ProcessGroup& group, Optimizer& optimizer, const std::function<void()>& update) {
  require_per_parameter(optimizer);
  plan(group, optimizer);
  {
    const HiddenGradients others(parameters_, owners_, group.rank());
    update();
  }
  broadcast_updates(group);
}

void OptimizerShard::broadcast_updates(ProcessGroup& group) const {
  const at::NoGradGuard no_grad;
  std::vector<std::unique_ptr<ProcessGroup::Work>> works;
  for (const Transfer& transfer : transfers_) {
    if (transfer.packed.defined() && transfer.owner == group.rank())
      copy_parts(transfer.packed, transfer.parameters, /*out_of=*/false);
    works.push_back(group.start_broadcast(
        transfer.packed.defined() ? transfer.packed : flat_view(transfer.parameters.front()),
        transfer.owner));
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i]->wait();
    const Transfer& transfer = transfers_[i];
    if (transfer.owner == group.rank()) continue;
    if (transfer.packed.defined()) copy_parts(transfer.packed, transfer.parameters, /*out_of=*/true);
    // Lets an autograd graph that still needs the former values detect the change.
    for (const at::Tensor& parameter : transfer.parameters) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace kindling
