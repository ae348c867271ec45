#include "training/inspect/host_wait_watch.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace kindling {
namespace {

// Operators whose results, or the shapes of these, depend on values that the host must read.
constexpr std::array<std::string_view, 9> kWaitingOperators = {
    "aten::item",    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
    "aten::nonzero", "aten::masked_select",       "aten::_unique2",   "aten::bincount",
    "aten::allclose"};

thread_local HostWaitWatch* current_watch = nullptr;

// What the end of an operator needs to know of its inputs, which are gone by then.
struct HostOperator : at::ObserverContext {
  bool computes_on_host = false;  // of nothing but tensors that stay on the host
};

// copy_(self, src, non_blocking)
bool waits_for_a_copy(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  if (std::string_view(call.name()) != "aten::copy_" || inputs.size() != 3) return false;
  const at::Tensor to = inputs[0].toTensor(), from = inputs[1].toTensor();
  return to.is_cpu() && !from.is_cpu() && !inputs[2].toBool();
}

}  // namespace

HostWaitWatch::HostWaitWatch(Device device, std::vector<at::Tensor> on_host)
    : device_(device),
      on_host_(std::move(on_host)),
      former_(std::exchange(current_watch, this)),
      handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator, &on_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {}

HostWaitWatch::~HostWaitWatch() {
  at::removeCallback(handle_);
  current_watch = former_;
}

bool HostWaitWatch::stays_on_host(const at::Tensor& tensor) const {
  if (!tensor.defined()) return true;
  if (!device_.is_cpu()) return tensor.is_cpu();
  return tensor.has_storage() && std::ranges::any_of(on_host_, [&](const at::Tensor& known) {
           return known.storage().is_alias_of(tensor.storage());
         });
}

bool HostWaitWatch::waits(const at::RecordFunction& call) const {
  if (waits_for_a_copy(call)) return true;
  if (std::ranges::find(kWaitingOperators, std::string_view(call.name())) == kWaitingOperators.end())
    return false;
  return std::ranges::any_of(call.inputs(), [&](const c10::IValue& input) {
    return input.isTensor() && !stays_on_host(input.toTensor());
  });
}

void HostWaitWatch::note(const char* op) {
  const HostCaller::Name caller = HostCaller::current();
  if (caller.what == nullptr || std::ranges::find(found_, caller, &Wait::caller) != found_.end()) return;
  found_.push_back({caller, op});
}

void HostWaitWatch::keep_on_host(const c10::IValue& output) {
  if (output.isTensor() && output.toTensor().defined() && output.toTensor().has_storage())
    on_host_.push_back(output.toTensor());
}

std::unique_ptr<at::ObserverContext> HostWaitWatch::on_operator(const at::RecordFunction& call) {
  HostWaitWatch* const watch = current_watch;
  if (watch == nullptr) return nullptr;
  int& depth = watch->depth_in_fused_;
  if (depth > 0 || std::string_view(call.name()).starts_with("aten::_fused_")) ++depth;
  if (depth > 0) return nullptr;
  if (watch->waits(call)) watch->note(call.name());
  bool has_tensors = false, are_on_host = true;
  for (const c10::IValue& input : call.inputs()) {
    if (input.isTensorList()) are_on_host = false;
    if (!input.isTensor() || !input.toTensor().defined()) continue;
    has_tensors = true;
    are_on_host = are_on_host && watch->stays_on_host(input.toTensor());
  }
  auto context = std::make_unique<HostOperator>();
  context->computes_on_host = watch->device_.is_cpu() && has_tensors && are_on_host;
  return context;
}

void HostWaitWatch::on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  HostWaitWatch* const watch = current_watch;
  if (watch == nullptr) return;
  if (watch->depth_in_fused_ > 0) --watch->depth_in_fused_;
  const auto* of_start = static_cast<const HostOperator*>(context);
  if (of_start == nullptr || !watch->device_.is_cpu()) return;
  const auto& outputs = call.outputs();
  if (of_start->computes_on_host)
    for (const c10::IValue& output : outputs) watch->keep_on_host(output);
  else if (std::string_view(call.name()) == "aten::_pack_padded_sequence" && outputs.size() == 2)
    watch->keep_on_host(outputs[1]);  // the batch sizes
}

}  // namespace kindling
