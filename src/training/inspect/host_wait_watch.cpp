#include "training/inspect/host_wait_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kindling {
namespace {

// Operators whose results, or the shapes of these, depend on values that the host must read.
constexpr std::array<std::string_view, 9> kWaitingOperators = {
    "aten::item",    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
    "aten::nonzero", "aten::masked_select",       "aten::_unique2",   "aten::bincount",
    "aten::allclose"};

thread_local HostWaitWatch* current_watch = nullptr;

// copy_(self, src, non_blocking)
bool waits_for_a_copy(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  if (std::string_view(call.name()) != "aten::copy_" || inputs.size() != 3) return false;
  const at::Tensor to = inputs[0].toTensor(), from = inputs[1].toTensor();
  return to.is_cpu() && !from.is_cpu() && !inputs[2].toBool();
}

}  // namespace

HostWaitWatch::HostWaitWatch()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator, &on_end)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  current_watch = this;
}

HostWaitWatch::~HostWaitWatch() {
  at::removeCallback(handle_);
  current_watch = nullptr;
}

std::unique_ptr<at::ObserverContext> HostWaitWatch::on_operator(const at::RecordFunction& call) {
  if (current_watch == nullptr || !current_watch->found_.empty()) return nullptr;
  const std::string_view name = call.name();
  int& depth = current_watch->depth_in_fused_;
  if (depth > 0 || name.starts_with("aten::_fused_")) ++depth;
  if (depth > 0) return nullptr;
  const bool waits = std::ranges::find(kWaitingOperators, name) != kWaitingOperators.end();
  if (waits || waits_for_a_copy(call)) current_watch->found_ = call.name();
  return nullptr;
}

void HostWaitWatch::on_end(const at::RecordFunction&, at::ObserverContext*) {
  if (current_watch != nullptr && current_watch->depth_in_fused_ > 0) --current_watch->depth_in_fused_;
}

}  // namespace kindling
