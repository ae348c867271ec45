#include "graph/operator_recorder.h"

#include <atomic>
#include <utility>

namespace kindling {
namespace {

// LibTorch's key for tensors without memory, which sits below autograd and autocast. No C++ program has a
// fallback there.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

std::atomic<std::uint64_t> calls_on_other_threads{0};

std::string why_not_recordable(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape))
    return "it calls " + op.schema().name() + ", whose result the host reads";
  const std::string& name = op.schema().name();
  for (const char* changing : {"aten::set_", "aten::resize_", "aten::resize_as_", "aten::set_data"})
    if (name == changing) return "it calls " + name + ", which gives a tensor other memory";
  return {};
}

OperatorValue value_of(Recording& recording, const c10::IValue& value, bool is_new) {
  using Kind = OperatorValue::Kind;
  if (value.isTensor())
    return {.kind = Kind::tensor, .places = {recording.place_of(value.toTensor(), is_new)}};
  if (value.isTensorList()) {
    OperatorValue list{.kind = Kind::tensor_list};
    for (const at::Tensor& tensor : value.toTensorVector())
      list.places.push_back(recording.place_of(tensor, is_new));
    return list;
  }
  if (value.isOptionalTensorList()) {
    OperatorValue list{.kind = Kind::optional_tensor_list};
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.places.push_back(recording.place_of(tensor.value_or(at::Tensor()), is_new));
    return list;
  }
  return {.constant = value};
}

std::vector<OperatorValue> values_of(Recording& recording, torch::jit::Stack& stack, std::size_t count,
                                     bool is_new) {
  std::vector<OperatorValue> values;
  values.reserve(count);
  for (auto at = stack.end() - static_cast<std::ptrdiff_t>(count); at != stack.end(); ++at)
    values.push_back(value_of(recording, *at, is_new));
  return values;
}

}  // namespace

thread_local OperatorRecorder* OperatorRecorder::current_ = nullptr;

// The fallback is registered when it is first needed and then stays: threads may outlive main().
std::string OperatorRecorder::why_not() {
  static const std::string reason = []() -> std::string {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(kKey))
      return "something else in this process records operators";
    new c10::RegistrationHandleRAII(dispatcher.registerFallback(
        kKey, c10::KernelFunction::makeFromBoxedFunction<&OperatorRecorder::record>(), "kindling"));
    return {};
  }();
  return reason;
}

OperatorRecorder::OperatorRecorder(Recording& recording)
    : recording_(recording), calls_elsewhere_(calls_on_other_threads), listening_(kKey) {
  current_ = this;
}

OperatorRecorder::~OperatorRecorder() {
  current_ = nullptr;
  if (calls_elsewhere_ != calls_on_other_threads) recording_.refuse("it works on several threads");
}

void OperatorRecorder::refuse(std::string_view reason) {
  if (current_ != nullptr) current_->recording_.refuse(std::string(reason));
}

void OperatorRecorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  const c10::impl::ExcludeDispatchKeyGuard not_here(kKey);
  OperatorRecorder* const recorder = current_;
  if (recorder == nullptr) {
    ++calls_on_other_threads;  // they have inherited the key
    op.redispatchBoxed(below, stack);
  } else if (!recorder->recording_.refusal.empty()) {
    op.redispatchBoxed(below, stack);
  } else {
    recorder->add(op, below, *stack);
  }
}

void OperatorRecorder::add(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                           torch::jit::Stack& stack) {
  if (std::string reason = why_not_recordable(op); !reason.empty()) recording_.refuse(std::move(reason));
  auto arguments = values_of(recording_, stack, op.schema().arguments().size(), /*is_new=*/false);
  op.redispatchBoxed(below, &stack);
  auto results = values_of(recording_, stack, op.schema().returns().size(), /*is_new=*/true);
  recording_.calls.push_back({op, std::move(arguments), std::move(results)});
}

}  // namespace kindling
