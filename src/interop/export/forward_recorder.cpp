#include "programs/forward_recorder.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

#include "graph/operator_kinds.h"
#include "programs/no_program.h"
#include "programs/operator_refusal.h"
#include "programs/recorded_argument.h"

namespace kindling {
namespace {

// A key above autograd, autocast and tracing, and outside of the composites' set, so that a fallback on it
// sees composites whole. No C++ program has one there.
constexpr c10::DispatchKey kAboveAutograd = c10::DispatchKey::DeferredInit;

std::atomic<std::uint64_t> forward_calls_elsewhere{0};

std::string layer_of(const std::string& weight) {
  const std::size_t dot = weight.rfind('.');
  return dot == std::string::npos ? "" : weight.substr(0, dot);
}

std::string operator_text(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  return overload.empty() ? name : name + "." + overload;
}

RecordedValues::Use use_of(const c10::OperatorHandle& op, std::size_t argument) {
  using Use = RecordedValues::Use;
  if (is_view(op)) return Use::looks;
  if (overwrites(op, argument)) return Use::overwrites;
  return writes_to(op, argument) ? Use::writes : Use::reads;
}

// Running statistics are moved without a word of it in the schema.
bool moves_statistics(const c10::OperatorHandle& op, const c10::Argument& argument) {
  return op.schema().name().ends_with("_norm") &&
         (argument.name() == "running_mean" || argument.name() == "running_var");
}

}  // namespace

thread_local ForwardRecorder* ForwardRecorder::current_ = nullptr;

// Registered when it is first needed; then it stays: threads may outlive main().
void ForwardRecorder::register_fallback() {
  static const bool is_ours = [] {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(kAboveAutograd)) return false;
    [[maybe_unused]] static auto* const kept = new c10::RegistrationHandleRAII(dispatcher.registerFallback(
        kAboveAutograd, c10::KernelFunction::makeFromBoxedFunction<&ForwardRecorder::record>(), "kindling"));
    return true;
  }();
  if (!is_ours)
    throw Error({.place = "export of a model",
                 .found = "something else in this process listens to LibTorch's operators (DeferredInit)",
                 .remedy = "export from a process of its own"});
}

ForwardRecorder::ForwardRecorder(ForwardRecording& recording, const NamedTensors& weights,
                                 const Batch& inputs)
    : recording_(recording),
      values_(recording),
      trains_(at::GradMode::is_enabled()),
      calls_elsewhere_(forward_calls_elsewhere) {
  if (current_ != nullptr)
    throw Error({.place = "export of a model",
                 .found = "it is called within the forward of another export",
                 .wanted = "one export at a time and thread"});
  register_fallback();
  for (const auto& [name, tensor] : weights) {
    recording_.weights.push_back(values_.add(tensor, /*learns=*/true));
    layers_.try_emplace(tensor.unsafeGetTensorImpl(), layer_of(name));
  }
  for (const at::Tensor& input : inputs.tensors())
    recording_.inputs.push_back(values_.add(input, /*learns=*/true));
  current_ = this;
  listening_.emplace(kAboveAutograd);
}

ForwardRecorder::~ForwardRecorder() {
  listening_.reset();
  current_ = nullptr;
}

template <class Work>
void ForwardRecorder::unless_refused(const c10::OperatorHandle& op, const Work& work) {
  if (refusal_) return;
  try {
    work();
  } catch (const NoProgram& reason) {
    const std::string behind = layer_.empty() ? "" : " in or behind the layer " + layer_;
    refusal_ = {.place = "operator " + operator_text(op) + behind,
                .found = reason.found,
                .wanted = "a forward that can be a program of operators",
                .remedy = reason.remedy};
  }
}

void ForwardRecorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kAboveAutograd);
  const c10::impl::ExcludeDispatchKeyGuard not_here(kAboveAutograd);
  if (current_ != nullptr && !asks_for_layout(op, *stack)) return current_->add(op, below, *stack);
  if (current_ == nullptr) ++forward_calls_elsewhere;  // on a thread that has inherited the key
  op.redispatchBoxed(below, stack);
}

void ForwardRecorder::add(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                          torch::jit::Stack& stack) {
  std::optional<RecordedCall> call;
  unless_refused(op, [&] {
    require_program_operator(op, stack);
    call = begun(op, stack);
  });
  const bool has_gradients = at::GradMode::is_enabled();
  op.redispatchBoxed(below, &stack);
  if (call) unless_refused(op, [&] { end(std::move(*call), stack, has_gradients); });
}

RecordedCall ForwardRecorder::begun(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  RecordedCall call{op, {.target = "", .inputs = {}, .outputs = {}}};
  const auto& schema = op.schema().arguments();
  const std::size_t first = stack.size() - schema.size();
  call_learns_ = false;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const auto taken = [&](const at::Tensor& tensor) {
      if (const auto layer = layers_.find(tensor.unsafeGetTensorImpl()); layer != layers_.end())
        call.node.layer = layer_ = layer->second;
      const ProgramArgument argument = values_.taken(tensor, use_of(op, i));
      if (const auto* value = std::get_if<TensorName>(&argument.value))
        call_learns_ = call_learns_ || values_.learns(value->name);
      if (writes_to(op, i) || moves_statistics(op, schema[i]))
        call.writes.push_back(RecordedValues::storage_of(tensor));
      return argument;
    };
    call.node.inputs.push_back({.name = schema[i].name(),
                                .argument = recorded_argument(schema[i], stack[first + i], taken),
                                .is_keyword = schema[i].kwarg_only()});
  }
  call.behind = layer_;
  return call;
}

std::string ForwardRecorder::result_name(const RecordedCall& call, const at::Tensor& tensor,
                                         bool has_gradients) {
  const std::string name = values_.add(tensor, call_learns_);
  if (only_makes_memory(call.op)) values_.add_blank(tensor);
  if (!trains_ || has_gradients || !call_learns_ || !call.writes.empty()) return name;
  late_detached_.emplace_back(tensor, name);
  return name;
}

ProgramArgument ForwardRecorder::result(const RecordedCall& call, const c10::IValue& value,
                                        bool has_gradients) {
  if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return {};
  if (value.isTensor()) return {TensorName{result_name(call, value.toTensor(), has_gradients)}};
  if (!value.isTensorList())
    throw NoProgram{"it gives a " + value.tagKind() + " beside tensors", "take another operator"};
  ProgramList list{.of = ProgramList::Of::tensors, .items = {}};
  for (const at::Tensor& tensor : value.toTensorVector())
    list.items.push_back({TensorName{result_name(call, tensor, has_gradients)}});
  return {std::move(list)};
}

// What has been computed without gradients, in the forward of a training, is cut off in the program.
void ForwardRecorder::end(RecordedCall call, const torch::jit::Stack& stack, bool has_gradients) {
  const std::size_t count = call.op.schema().returns().size();
  late_detached_.clear();
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i)
    call.node.outputs.push_back(result(call, stack[i], has_gradients));
  const bool changes_learning = trains_ && !has_gradients && !call.writes.empty() && count > 0 &&
                                stack.back().isTensor() && stack.back().toTensor().requires_grad();
  if (changes_learning)
    throw NoProgram{"it changes, without gradients, what gradients flow through",
                    "change it in the training step, not in the forward"};
  recording_.calls.push_back(std::move(call));
  for (const auto& [tensor, name] : late_detached_) values_.detached(tensor, name);
}

void ForwardRecorder::require_program() const {
  if (refusal_) throw Error(*refusal_);
  if (calls_elsewhere_ != forward_calls_elsewhere)
    throw Error({.place = "export of a model", .found = "its forward works on several threads"});
}

void ForwardRecorder::finish(const Batch& outputs) {
  listening_.reset();
  require_program();
  try {
    for (const at::Tensor& output : outputs.tensors()) {
      const ProgramArgument value = values_.taken(output, RecordedValues::Use::reads);
      if (const auto* tensor = std::get_if<TensorName>(&value.value))
        recording_.outputs.push_back(tensor->name);
      else
        throw NoProgram{"it is a number of the host", "give a tensor that an operator has computed"};
    }
  } catch (const NoProgram& reason) {
    throw Error({.place = "output " + std::to_string(recording_.outputs.size()) + " of the forward",
                 .found = reason.found,
                 .wanted = "a tensor of the program",
                 .remedy = reason.remedy});
  }
}

}  // namespace kindling
