#include "interop/export/forward_recorder.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/is_set_to.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <complex>
#include <initializer_list>
#include <string_view>

#include "graph/recording/operator_kinds.h"
#include "interop/export/recorded_argument.h"

namespace kindling {
namespace {

// A C++ number in the place of a tensor, as in `x * 2`; type promotion treats it as a number.
ProgramArgument wrapped_number(const at::Tensor& tensor) {
  const at::Scalar number = tensor.item();
  if (number.isBoolean()) return {number.toBool()};
  if (number.isIntegral(/*includeBool=*/false)) return {number.toLong()};
  if (number.isFloatingPoint()) return {number.toDouble()};
  const c10::complex<double> complex = number.toComplexDouble();
  return {std::complex<double>(complex.real(), complex.imag())};
}

bool has_layout(const at::Tensor& tensor, const ProgramTensor& known) {
  const auto numbers_are = [](at::IntArrayRef numbers, const std::vector<ProgramSize>& sizes) {
    return std::ranges::equal(numbers, sizes, {}, {}, &ProgramSize::number);
  };
  return numbers_are(tensor.sizes(), known.sizes) && numbers_are(tensor.strides(), known.strides) &&
         tensor.storage_offset() == known.offset.number && recorded_tensor(tensor).type == known.type;
}

}  // namespace

std::string RecordedValues::add(const at::Tensor& tensor, bool learns) {
  const std::string name = std::to_string(count_++);
  recording_.tensors[name] = recorded_tensor(tensor);
  recording_.storages[name] = storage_of(tensor);
  names_[tensor.unsafeGetTensorImpl()] = name;
  by_storage_[storage_of(tensor)].push_back(name);
  if (learns) learning_.insert(name);
  kept_.push_back(tensor);
  return name;
}

std::string RecordedValues::copied_value(const at::Tensor& tensor) const {
  const auto known = by_storage_.find(storage_of(tensor));
  if (known == by_storage_.end()) return "";
  for (auto name = known->second.rbegin(); name != known->second.rend(); ++name)
    if (has_layout(tensor, recording_.tensors.at(*name))) return *name;
  throw ExportError{"it takes a view that was not created by an operator",
                    "create views with operators such as torch::narrow"};
}

ProgramArgument RecordedValues::constant(const at::Tensor& tensor) {
  if (tensor.requires_grad() && tensor.is_leaf())
    throw ExportError{"it takes a tensor that requires gradients and is not a parameter of the model",
                      "register it with register_parameter()"};
  const std::string name = add(tensor, /*learns=*/false);
  recording_.constants.emplace_back(name, tensor.detach().clone(at::MemoryFormat::Contiguous));
  recording_.tensors[name] = recorded_tensor(recording_.constants.back().second);
  return {TensorName{name}};
}

std::string RecordedValues::detached(const at::Tensor& tensor, const std::string& value) {
  static const c10::OperatorHandle detach =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::detach", "");
  RecordedCall call{
      detach, {.target = "", .inputs = {{.name = "self", .argument = {TensorName{value}}}}, .outputs = {}}};
  const std::string name = add(tensor, /*learns=*/false);
  call.node.outputs.push_back({TensorName{name}});
  recording_.calls.push_back(std::move(call));
  return name;
}

ProgramArgument RecordedValues::argument_for(const at::Tensor& tensor, Use use) {
  const auto known = names_.find(tensor.unsafeGetTensorImpl());
  if (known == names_.end() && tensor.unsafeGetTensorImpl()->is_wrapped_number())
    return wrapped_number(tensor);
  recorded_tensor(tensor);  // throws for tensors without storage
  const bool is_blank = blank_.contains(storage_of(tensor));
  if (use == Use::overwrites) blank_.erase(storage_of(tensor));
  if (is_blank && use == Use::writes)
    throw ExportError{"it modifies memory that the host has filled", "fill it with an operator"};
  if (is_blank && use == Use::reads) {
    for (const auto& [name, values] : recording_.constants)
      if (known != names_.end() && known->second == name) return {TensorName{name}};
    return constant(tensor);
  }
  if (known != names_.end()) return {TensorName{known->second}};
  if (const std::string copied = copied_value(tensor); !copied.empty())
    return {TensorName{learns(copied) ? detached(tensor, copied) : copied}};
  if (use != Use::reads && use != Use::looks)
    throw ExportError{"it modifies a tensor that is neither an input nor part of the model",
                      "register it with register_buffer()"};
  return constant(tensor);
}

namespace {

bool is_any_of(const c10::OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, std::string_view(op.schema().name())) != names.end();
}

bool returns_tensors(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument& result) {
    return result.type()->str().find("Tensor") != std::string::npos;
  });
}

bool writes_any(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

const c10::IValue& argument_in(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                               std::size_t number) {
  return stack[stack.size() - op.schema().arguments().size() + number];
}

bool reads_values(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::data_dependent_output) || is_any_of(op, {"aten::is_nonzero", "aten::item"});
}

// Attention checks whether query and key are the same tensor: their addresses answer that without the values.
bool is_decided_by_layout(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!is_any_of(op, {"aten::equal"})) return false;
  const at::Tensor &one = argument_in(op, stack, 0).toTensor(), &other = argument_in(op, stack, 1).toTensor();
  return one.sizes() != other.sizes() || one.is_set_to(other);
}

// Indexing by integers has a known shape, although the operator has the tag of an unknown one.
bool has_mask(const c10::IValue& indices) {
  const auto is_mask = [](const std::optional<at::Tensor>& index) {
    return index && index->defined() &&
           (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
  };
  return std::ranges::any_of(indices.toOptionalTensorVector(), is_mask);
}

// Composite operators lack the tag dynamic_output_shape, so they are listed here.
bool has_unknown_shape(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (is_any_of(op, {"aten::one_hot"}))
    return argument_in(op, stack, 1).toInt() < 0;  // as many classes as the values need
  if (is_any_of(op, {"aten::index"})) return has_mask(argument_in(op, stack, 1));
  if (op.hasTag(at::Tag::dynamic_output_shape)) return true;
  if (is_any_of(op, {"aten::nonzero_numpy", "aten::_pack_padded_sequence", "aten::unique_consecutive"}))
    return true;
  if (is_any_of(op, {"aten::where"})) return op.schema().arguments().size() == 1;
  if (is_any_of(op, {"aten::tensor_split", "aten::repeat_interleave"}))
    return op.schema().arguments()[1].type()->kind() == c10::TypeKind::TensorType;
  return false;
}

// True if a call only queries properties of a tensor, not its values: it is not recorded.
bool queries_layout_only(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return op.schema().name().starts_with("aten::") && !returns_tensors(op) && !writes_any(op) &&
         !op.schema().returns().empty() && (!reads_values(op) || is_decided_by_layout(op, stack));
}

// Throws ExportError for an operator that a program cannot contain: its result depends on values that the
// host reads, or it is not a built-in PyTorch operator.
void require_program_operator(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.schema().name().starts_with("aten::"))
    throw ExportError{"it is not a built-in PyTorch operator",
                      "write this part of the forward pass with ATen operators"};
  if (reads_values(op))
    throw ExportError{"the host reads a value, and the program may then depend on it",
                      "compute with the tensor instead"};
  if (has_unknown_shape(op, stack))
    throw ExportError{"the shape of its result depends on the values of the batch",
                      "use an operator whose result has a known shape, such as torch::where with a mask"};
  if (is_any_of(op, {"aten::set_", "aten::set_data", "aten::resize_", "aten::resize_as_"}))
    throw ExportError{"it changes the memory of a tensor", "create a new tensor"};
}

// A dispatch key above autograd, autocast and tracing, and outside the set of the composites, so that its
// fallback sees whole composite operators. C++ programs do not use it.
constexpr c10::DispatchKey kAboveAutograd = c10::DispatchKey::DeferredInit;

std::atomic<std::uint64_t> other_thread_calls{0};

// torch::nn's layers pad with an operator that only C++ calls, and that has the mode as a number of
// at::padding_mode.
void use_operator_of_programs(RecordedCall& call) {
  if (!is_any_of(call.op, {"aten::_pad_enum"})) return;
  constexpr std::array<const char*, 4> kModes{"reflect", "replicate", "circular", "constant"};
  static const c10::OperatorHandle pad = c10::Dispatcher::singleton().findSchemaOrThrow("aten::pad", "");
  call.op = pad;
  for (ProgramNode::Input& input : call.node.inputs)
    if (const auto* mode = std::get_if<std::int64_t>(&input.argument.value);
        mode != nullptr && input.name == "mode")
      input.argument = {std::string(kModes.at(static_cast<std::size_t>(*mode)))};
}

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

// The schema does not say that running statistics are updated.
bool moves_statistics(const c10::OperatorHandle& op, const c10::Argument& argument) {
  return op.schema().name().ends_with("_norm") &&
         (argument.name() == "running_mean" || argument.name() == "running_var");
}

}  // namespace

thread_local ForwardRecorder* ForwardRecorder::current_ = nullptr;

// Registered on first use and never removed, because threads may outlive main().
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
                 .found = "another library in this process has registered a fallback for LibTorch's dispatch "
                          "key DeferredInit",
                 .wanted = "a process in which that key is free",
                 .remedy = "export from a process that does not load that library"});
}

ForwardRecorder::ForwardRecorder(ForwardRecording& recording, const NamedTensors& weights,
                                 const Batch& inputs)
    : recording_(recording),
      values_(recording),
      trains_(at::GradMode::is_enabled()),
      other_thread_calls_(other_thread_calls) {
  if (current_ != nullptr)
    throw Error({.place = "export of a model",
                 .found = "it was called during another export",
                 .wanted = "one export at a time per thread"});
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
  } catch (const ExportError& reason) {
    const std::string last_layer = layer_.empty() ? "" : " in or after layer " + layer_;
    refusal_ = {.place = "operator " + operator_text(op) + last_layer,
                .found = reason.found,
                .wanted = "a forward pass that can be exported as a program of operators",
                .remedy = reason.remedy};
  }
}

void ForwardRecorder::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kAboveAutograd);
  const c10::impl::ExcludeDispatchKeyGuard without_recording(kAboveAutograd);
  if (current_ != nullptr && !queries_layout_only(op, *stack)) return current_->add(op, below, *stack);
  if (current_ == nullptr) ++other_thread_calls;  // on a thread that has inherited the key
  op.redispatchBoxed(below, stack);
}

void ForwardRecorder::add(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                          torch::jit::Stack& stack) {
  std::optional<RecordedCall> call;
  unless_refused(op, [&] {
    require_program_operator(op, stack);
    call = begin_call(op, stack);
  });
  const bool has_gradients = at::GradMode::is_enabled();
  op.redispatchBoxed(below, &stack);
  if (call) unless_refused(op, [&] { end(std::move(*call), stack, has_gradients); });
}

RecordedCall ForwardRecorder::begin_call(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  RecordedCall call{op, {.target = "", .inputs = {}, .outputs = {}}};
  const auto& schema = op.schema().arguments();
  const std::size_t first = stack.size() - schema.size();
  call_learns_ = false;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const auto argument_for = [&](const at::Tensor& tensor) {
      if (const auto layer = layers_.find(tensor.unsafeGetTensorImpl()); layer != layers_.end())
        call.node.layer = layer_ = layer->second;
      const ProgramArgument argument = values_.argument_for(tensor, use_of(op, i));
      if (const auto* value = std::get_if<TensorName>(&argument.value))
        call_learns_ = call_learns_ || values_.learns(value->name);
      if (writes_to(op, i) || moves_statistics(op, schema[i]))
        call.writes.push_back(RecordedValues::storage_of(tensor));
      return argument;
    };
    call.node.inputs.push_back({.name = schema[i].name(),
                                .argument = recorded_argument(schema[i], stack[first + i], argument_for),
                                .is_keyword = schema[i].kwarg_only()});
  }
  call.last_layer = layer_;
  use_operator_of_programs(call);
  return call;
}

std::string ForwardRecorder::result_name(const RecordedCall& call, const at::Tensor& tensor,
                                         bool has_gradients) {
  const std::string name = values_.add(tensor, call_learns_);
  if (only_makes_memory(call.op)) values_.add_blank(tensor);
  if (!trains_ || has_gradients || !call_learns_ || !call.writes.empty()) return name;
  detached_results_.emplace_back(tensor, name);
  return name;
}

ProgramArgument ForwardRecorder::result(const RecordedCall& call, const c10::IValue& value,
                                        bool has_gradients) {
  if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return {};
  if (value.isTensor()) return {TensorName{result_name(call, value.toTensor(), has_gradients)}};
  if (!value.isTensorList())
    throw ExportError{"it returns a " + value.tagKind() + " in addition to tensors", "use another operator"};
  ProgramList list{.element = ProgramList::Element::tensors, .items = {}};
  for (const at::Tensor& tensor : value.toTensorVector())
    list.items.push_back({TensorName{result_name(call, tensor, has_gradients)}});
  return {std::move(list)};
}

// Results that a training forward pass computed without gradients are detached in the program.
void ForwardRecorder::end(RecordedCall call, const torch::jit::Stack& stack, bool has_gradients) {
  const std::size_t count = call.op.schema().returns().size();
  detached_results_.clear();
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i)
    call.node.outputs.push_back(result(call, stack[i], has_gradients));
  const bool changes_learning = trains_ && !has_gradients && !call.writes.empty() && count > 0 &&
                                stack.back().isTensor() && stack.back().toTensor().requires_grad();
  if (changes_learning)
    throw ExportError{"it modifies, without gradients, a tensor that gradients flow through",
                      "modify it in the training step, not in the forward pass"};
  recording_.calls.push_back(std::move(call));
  for (const auto& [tensor, name] : detached_results_) values_.detached(tensor, name);
}

void ForwardRecorder::require_program() const {
  if (refusal_) throw Error(*refusal_);
  if (other_thread_calls_ != other_thread_calls)
    throw Error(
        {.place = "export of a model", .found = "the forward pass calls operators on several threads"});
}

void ForwardRecorder::finish(const Batch& outputs) {
  listening_.reset();
  require_program();
  try {
    for (const at::Tensor& output : outputs.tensors()) {
      const ProgramArgument value = values_.argument_for(output, RecordedValues::Use::reads);
      if (const auto* tensor = std::get_if<TensorName>(&value.value))
        recording_.outputs.push_back(tensor->name);
      else
        throw ExportError{"it is a number on the host", "return a tensor computed by an operator"};
    }
  } catch (const ExportError& reason) {
    throw Error({.place = "output " + std::to_string(recording_.outputs.size()) + " of the forward pass",
                 .found = reason.found,
                 .wanted = "a tensor of the program",
                 .remedy = reason.remedy});
  }
}

}  // namespace kindling
