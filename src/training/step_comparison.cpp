#include "training/step_comparison.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <utility>

#include "graph/digest.h"
#include "kindling/device/transfer_counts.h"

namespace kindling {
namespace {

std::vector<at::Tensor> both(std::vector<at::Tensor> one, const std::vector<at::Tensor>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

// The same elements as whole numbers, which are equal where the bits are.
at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
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
  std::vector<at::Tensor> differ;
  for (std::size_t i = 0; i < ones.size(); ++i)
    if (ones[i].defined() && ones[i].numel() > 0)
      differ.push_back(at::any(at::ne(bits_of(ones[i]), bits_of(others[i]))));
  differs_ = at::any(at::stack(differ));
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
