#include "training/inspect/nonfinite_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace kindling {
namespace {

thread_local NonfiniteWatch* current_nonfinite_watch = nullptr;

std::vector<at::Tensor> tensors_of(c10::ArrayRef<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// True for operators whose output is not initialized yet.
bool gives_memory_only(std::string_view name) {
  return name.find("empty") != std::string_view::npos || name.find("resize") != std::string_view::npos;
}

// Returns "layer 'net.1'" for "net.1.weight"; a parameter of the model itself has no layer.
std::string place_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "parameter '" + parameter + "'"
                                  : "layer '" + parameter.substr(0, dot) + "'";
}

}  // namespace

std::string nonfinite_part(const at::Tensor& tensor) {
  if (!tensor.defined() || !(tensor.is_floating_point() || tensor.is_complex())) return {};
  const at::NoGradGuard no_grad;
  const at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  if (at::isnan(values).any().item<bool>()) return "NaN";
  return at::isinf(values).any().item<bool>() ? "an infinity" : "";
}

NonfiniteWatch::NonfiniteWatch(const torch::nn::Module& model) {
  for (const auto& item : model.named_parameters())
    if (const void* memory = memory_of(item.value())) parameters_.emplace(memory, item.key());
  current_nonfinite_watch = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator, &on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

NonfiniteWatch::~NonfiniteWatch() {
  at::removeCallback(handle_);
  current_nonfinite_watch = nullptr;
}

// The inputs of a call, noted before it runs, because they may be freed by then.
struct NonfiniteWatch::Inputs : at::ObserverContext {
  std::vector<const void*> memory;
  const std::string* parameter = nullptr;  // one of them
};

std::unique_ptr<at::ObserverContext> NonfiniteWatch::on_operator(const at::RecordFunction& call) {
  auto inputs = std::make_unique<Inputs>();
  NonfiniteWatch* const watch = current_nonfinite_watch;
  if (watch == nullptr || watch->depth_++ > 0) return inputs;
  for (const at::Tensor& tensor : tensors_of(call.inputs())) {
    inputs->memory.push_back(memory_of(tensor));
    const auto known = watch->parameters_.find(inputs->memory.back());
    if (known != watch->parameters_.end()) watch->last_parameter_ = inputs->parameter = &known->second;
  }
  return inputs;
}

void NonfiniteWatch::on_end(const at::RecordFunction& call, at::ObserverContext* inputs) {
  NonfiniteWatch* const watch = current_nonfinite_watch;
  // Outputs of nested operators may be memory that the outer operator has not written yet.
  if (watch == nullptr || --watch->depth_ > 0 || gives_memory_only(call.name())) return;
  const at::DisableRecordFunctionGuard unseen;  // hides the operators of this check
  watch->look(call, static_cast<const Inputs&>(*inputs));
}

void NonfiniteWatch::look(const at::RecordFunction& call, const Inputs& inputs) {
  const std::string name = call.name();
  const std::vector<c10::IValue>& outputs = call.outputs();
  for (const at::Tensor& tensor :
       tensors_of(c10::ArrayRef<const c10::IValue>(outputs.data(), outputs.size()))) {
    const bool is_input = std::ranges::find(inputs.memory, memory_of(tensor)) != inputs.memory.end();
    if (is_input && !name.ends_with('_')) continue;  // a view, or the input itself
    const std::string part = nonfinite_part(tensor);
    if (part.empty() || is_found_["NaN"] || std::exchange(is_found_[part], true)) continue;
    std::string of = name + ", before the first layer,";
    if (inputs.parameter != nullptr)
      of = place_of(*inputs.parameter) + " (" + name + ")";
    else if (last_parameter_ != nullptr)
      of = name + ", after " + place_of(*last_parameter_) + ",";
    findings_.push_back("the output of " + of + " has " + part);
  }
}

}  // namespace kindling
