#include "training/capture/captured_update.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "graph/device/side_stream.h"
#include "kindling/base/log.h"
#include "optim/fused_rule.h"
#include "optim/optimizer_access.h"

namespace kindling {
namespace {

// Each layout of batches has separate gradients and needs its own recording.
constexpr std::size_t kMostParts = 8;

// True if all tensors are dense and on the device. A graph would see others as they were when it was
// recorded, or not at all.
bool are_dense_on(Device device, std::span<const at::Tensor> tensors) {
  return std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.device() == device;
  });
}

}  // namespace

void CaptureKey::add(const at::Tensor& tensor) {
  if (!tensor.defined()) return words_.push_back(0);
  words_.push_back(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()));
  words_.push_back(static_cast<std::uint64_t>(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes()) words_.push_back(static_cast<std::uint64_t>(size));
  for (const std::int64_t stride : tensor.strides()) words_.push_back(static_cast<std::uint64_t>(stride));
}

void CaptureKey::add(double number) { words_.push_back(std::bit_cast<std::uint64_t>(number)); }

CapturedRegion::CapturedRegion(Device device, EpochLog& log)
    : device_(device), side_(new_side_stream(device)), log_(log) {}

void CapturedRegion::run(const CaptureKey& key, const std::function<void()>& work) {
  const auto has_key = [&](const Recorded& recorded) { return recorded.key == key; };
  if (const auto found = std::ranges::find_if(recorded_, has_key); found != recorded_.end())
    return start(*found);
  const bool comes_again = std::exchange(latest_, key) == key;
  if (comes_again && why_not_.empty() && record(key, work)) return start(recorded_.back());
  work();
}

bool CapturedRegion::record(const CaptureKey& key, const std::function<void()>& work) {
  Recorded made{.key = key, .graph = make_device_graph(device_)};
  const MarkedRow before(log_);
  try {
    const SideStream on_side(side_);
    made.graph->record(work);
  } catch (const c10::Error& error) {
    why_not_ = error.what_without_backtrace();
    why_not_.resize(std::min(why_not_.size(), why_not_.find('\n')));
    log_info("step_graph: the work after backward is not captured: " + why_not_);
    return false;
  }
  made.row = MarkedRow(log_, before);
  made.marked = made.row.take_tensors();
  if (recorded_.size() == kMostParts) recorded_.erase(recorded_.begin());
  recorded_.push_back(std::move(made));
  return true;
}

void CapturedRegion::start(const Recorded& recorded) {
  recorded.graph->replay();
  recorded.row.mark_in(log_, recorded.marked);
}

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
  for (std::size_t group = 0; group < rates.size(); ++group) key_.add(optimizer.weight_decay(group));
  updated_.run(key_, work);
  // A graph writes to the gradients without raising their version.
  for (const at::Tensor& parameter : optimizer.parameters())
    if (parameter.grad().defined()) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace kindling
