#include "training/capture/step_comparison.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "graph/recording/digest.h"
#include "kindling/device/transfer_counts.h"

namespace kindling {
namespace {

std::vector<at::Tensor> both(std::vector<at::Tensor> one, const std::vector<at::Tensor>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

bool are_alike(const at::Tensor& one, const at::Tensor& other) {
  if (!one.defined() || !other.defined()) return one.defined() == other.defined();
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes();
}

}  // namespace

void StepComparison::keep(const Run& first) {
  random_digests_ = digests(first.random);
  if (device_.is_cpu()) {
    digests_ = digests(both(first.results, first.changes));
    return;
  }
  const at::NoGradGuard no_grad;
  first_ = {.results = first.results, .changes = {}, .random = {}};
  for (const at::Tensor& change : first.changes) first_.changes.push_back(change.clone());
}

void StepComparison::compare(const Run& second, bool may_be_same) {
  if (!may_be_same || random_digests_ != digests(second.random))
    is_same_ = false;
  else if (device_.is_cpu())
    is_same_ = digests_ == digests(both(second.results, second.changes));
  else
    compare_on_device(second);
  first_ = {};
}

void StepComparison::compare_on_device(const Run& second) {
  const at::NoGradGuard no_grad;
  const auto ones = both(std::move(first_.results), first_.changes),
             others = both(second.results, second.changes);
  if (!std::ranges::equal(ones, others, are_alike)) {
    is_same_ = false;
    return;
  }
  std::vector<bool> are_gradients(ones.size());
  std::fill_n(are_gradients.begin() + 1, second.num_gradients, true);
  const at::Context& context = at::globalContext();
  const bool is_exact = context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  differs_ = differ(ones, others, are_gradients, is_exact ? RunTolerance{} : tolerance_);
  if (!differs_on_host_.defined()) differs_on_host_ = at::empty({}, at::dtype(at::kBool).pinned_memory(true));
  differs_on_host_.copy_(differs_, /*non_blocking=*/true);
  ++transfer_counts().device_to_host_copies;
  ++transfer_counts().device_to_host_bytes;
  done_ = std::make_unique<c10::Event>(device_.type());
  done_->record(at::accelerator::getCurrentStream(device_.index()));
}

std::optional<bool> StepComparison::answer() {
  if (done_ && done_->query()) {
    done_.reset();
    is_same_ = !*differs_on_host_.const_data_ptr<bool>();
  }
  return std::exchange(is_same_, std::nullopt);
}

void StepComparison::drop() {
  first_ = {};
  is_same_.reset();
  done_.reset();
}

}  // namespace kindling
