#include "graph/recording/operator_recorder.h"

#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "graph/recording/operator_kinds.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

// LibTorch's dispatch key for tensors without memory, below autograd and autocast. LibTorch registers no
// fallback for it in C++ programs (docs/start/inside_your_program.md).
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

std::atomic<std::uint64_t> calls_on_other_threads{0};

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

// True for a generator other than LibTorch's default one. The comparison of a replay with the step itself
// restores only default generators.
bool is_other_generator(const c10::IValue& value, Device device) {
  return value.isGenerator() && value.toGenerator().defined() &&
         value.toGenerator() != at::globalContext().defaultGenerator(device);
}

// True if a device operator takes a number on the host by value. The value then stays the same, except for
// one that is copied.
bool takes_number_as_value(const c10::OperatorHandle& op, std::span<const c10::IValue> given, Device device) {
  const auto is_tensor_on = [](Device there) {
    return [there](const c10::IValue& value) {
      return value.isTensor() && value.toTensor().defined() && value.toTensor().device() == there;
    };
  };
  if (device.is_cpu() || std::ranges::none_of(given, is_tensor_on(cpu()))) return true;
  return op.schema().name() != "aten::copy_" && std::ranges::any_of(given, is_tensor_on(device));
}

at::Tensor tensor_at(const c10::IValue& value, std::size_t number) {
  if (value.isTensor()) return value.toTensor();
  if (value.isTensorList()) return value.toTensorVector()[number];
  return value.toOptionalTensorVector()[number].value();
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

// Registers the fallback on first use. It is never removed, because threads may outlive main().
std::string OperatorRecorder::capture_obstacle() {
  static const std::string reason = []() -> std::string {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(kKey)) {
      log_warning(
          "step_graph: another library in this process has registered a fallback for LibTorch's dispatch key "
          "Fake, which Kindling needs to capture steps, so steps run eagerly");
      return "another library uses LibTorch's dispatch key Fake";
    }
    [[maybe_unused]] static auto* const kept = new c10::RegistrationHandleRAII(dispatcher.registerFallback(
        kKey, c10::KernelFunction::makeFromBoxedFunction<&OperatorRecorder::record>(), "kindling"));
    return {};
  }();
  return reason;
}

OperatorRecorder::OperatorRecorder(Recording& recording)
    : recording_(recording),
      outer_(std::exchange(current_, this)),
      calls_elsewhere_(calls_on_other_threads),
      listening_(kKey) {
  if (outer_ != nullptr) outer_->recording_.refuse("it trains another model");
}

OperatorRecorder::~OperatorRecorder() {
  current_ = outer_;
  if (calls_elsewhere_ != calls_on_other_threads) recording_.refuse("it runs operators on several threads");
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

// Memory that an operator reads before any operator has written to it was written by the host.
void OperatorRecorder::look_at_blanks(const c10::OperatorHandle& op,
                                      const std::vector<OperatorValue>& arguments,
                                      const torch::jit::Stack& stack) {
  if (is_view(op)) return;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for (std::size_t k = 0; k < arguments[i].places.size(); ++k) {
      if (arguments[i].places[k] < 0) continue;
      const std::size_t storage = recording_.places[static_cast<std::size_t>(arguments[i].places[k])].storage;
      if (!recording_.storages[storage].is_blank) continue;
      if (overwrites(op, i))
        recording_.storages[storage].is_blank = false;
      else if (writes_to(op, i))
        recording_.refuse("it changes memory that the host has written");
      else
        recording_.keep_constant(storage, tensor_at(stack[stack.size() - arguments.size() + i], k));
    }
}

void OperatorRecorder::add(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                           torch::jit::Stack& stack) {
  const std::span given(stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()),
                        stack.end());
  if (std::string reason = why_not_recordable(op, given); !reason.empty())
    recording_.refuse(std::move(reason));
  if (std::ranges::any_of(given,
                          [&](const auto& value) { return is_other_generator(value, recording_.device()); }))
    recording_.refuse("it draws from a custom generator");
  if (!takes_number_as_value(op, given, recording_.device()))
    recording_.refuse("it uses a tensor on the host");
  auto arguments = values_of(recording_, stack, op.schema().arguments().size(), /*is_new=*/false);
  look_at_blanks(op, arguments, stack);
  op.redispatchBoxed(below, &stack);
  auto results = values_of(recording_, stack, op.schema().returns().size(), /*is_new=*/true);
  // The host does not write to the memory of a device.
  if (recording_.device().is_cpu() && only_makes_memory(op) && results.front().places.front() >= 0)
    recording_.storages[recording_.places[static_cast<std::size_t>(results.front().places.front())].storage]
        .is_blank = true;
  recording_.calls.push_back({op, std::move(arguments), std::move(results)});
}

}  // namespace kindling
