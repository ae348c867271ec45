#include "training/optimizer_shards.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kindling/base/error.h"
#include "training/optimizer_states.h"

namespace kindling {

std::vector<std::int64_t> owners_of(std::span<const at::Tensor> parameters, std::int64_t num_processes) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return parameters[a].numel() > parameters[b].numel(); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(num_processes)), owners(parameters.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    *least += parameters[i].numel();
    owners[i] = least - load.begin();
  }
  return owners;
}

namespace {

// Above it a copy costs more than a message.
constexpr std::size_t kLargestPacked_bytes = 64 << 10;

bool travels_alone(const at::Tensor& parameter) {
  return parameter.nbytes() > kLargestPacked_bytes && parameter.is_non_overlapping_and_dense();
}

// The numbers of a parameter in the order in which they lie in memory.
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

// Keeps the gradients of other processes' parameters from the optimizer as long as it lives.
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

OptimizerShards::Plan& OptimizerShards::plan_of(Optimizer& optimizer) {
  Plan& plan = plans_[&optimizer];
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  if (std::ranges::equal(plan.parameters, optimizer.parameters(), is_same)) return plan;
  keep_own_share(optimizer, group_);
  plan = {.parameters = optimizer.parameters(),
          .owners = owners_of(optimizer.parameters(), group_.size()),
          .transfers = {}};
  using Kind = std::pair<std::int64_t, at::ScalarType>;
  std::map<Kind, std::vector<at::Tensor>> small;
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const at::Tensor& parameter = plan.parameters[i];
    if (parameter.numel() == 0) continue;
    if (travels_alone(parameter))
      plan.transfers.push_back({plan.owners[i], {parameter}, {}});
    else
      small[{plan.owners[i], parameter.scalar_type()}].push_back(parameter);
  }
  for (auto& [kind, parameters] : small) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : parameters) count += parameter.numel();
    const at::Tensor packed = at::empty({count}, parameters.front().options().requires_grad(false));
    plan.transfers.push_back({kind.first, std::move(parameters), packed});
  }
  return plan;
}

void OptimizerShards::step(Optimizer& optimizer, const std::function<void()>& update) {
  require_per_parameter(optimizer);
  Plan& plan = plan_of(optimizer);
  {
    const HiddenGradients others(plan.parameters, plan.owners, group_.rank());
    update();
  }
  bring_values(plan);
}

void OptimizerShards::bring_values(const Plan& plan) {
  const at::NoGradGuard no_grad;
  std::vector<std::unique_ptr<ProcessGroup::Work>> works;
  for (const Transfer& transfer : plan.transfers) {
    if (transfer.packed.defined() && transfer.owner == group_.rank())
      copy_parts(transfer.packed, transfer.parameters, /*out_of=*/false);
    works.push_back(group_.start_broadcast(
        transfer.packed.defined() ? transfer.packed : flat_view(transfer.parameters.front()),
        transfer.owner));
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i]->wait();
    const Transfer& transfer = plan.transfers[i];
    if (transfer.owner == group_.rank()) continue;
    if (transfer.packed.defined()) copy_parts(transfer.packed, transfer.parameters, /*out_of=*/true);
    // A graph that still needs the former values shall know.
    for (const at::Tensor& parameter : transfer.parameters) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace kindling
