#include "programs/recorded_values.h"

#include <algorithm>
#include <ranges>

#include "programs/no_program.h"
#include "programs/recorded_argument.h"

namespace kindling {
namespace {

// A number of C++ in the place of a tensor: `x * 2`. It takes part in no promotion of types but its own.
ProgramArgument wrapped_number(const at::Tensor& tensor) {
  const at::Scalar number = tensor.item();
  if (number.isBoolean()) return {number.toBool()};
  if (number.isIntegral(/*includeBool=*/false)) return {number.toLong()};
  if (number.isFloatingPoint()) return {number.toDouble()};
  throw NoProgram{"it takes a complex number", "take a tensor of the type"};
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
  for (const std::string& name : std::views::reverse(known->second))
    if (has_layout(tensor, recording_.tensors.at(name))) return name;
  throw NoProgram{"it takes a view that no operator has made",
                  "make views by operators such as torch::narrow"};
}

ProgramArgument RecordedValues::constant(const at::Tensor& tensor) {
  if (tensor.requires_grad() && tensor.is_leaf())
    throw NoProgram{"it takes a tensor that learns and is no parameter of the model",
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

ProgramArgument RecordedValues::taken(const at::Tensor& tensor, Use use) {
  const auto known = names_.find(tensor.unsafeGetTensorImpl());
  if (known == names_.end() && tensor.unsafeGetTensorImpl()->is_wrapped_number())
    return wrapped_number(tensor);
  recorded_tensor(tensor);  // throws for what has no storage
  const bool is_blank = blank_.contains(storage_of(tensor));
  if (use == Use::overwrites) blank_.erase(storage_of(tensor));
  if (is_blank && use == Use::writes)
    throw NoProgram{"it changes memory that the host has filled", "fill it by an operator"};
  if (is_blank && use == Use::reads) {
    for (const auto& [name, values] : recording_.constants)
      if (known != names_.end() && known->second == name) return {TensorName{name}};
    return constant(tensor);
  }
  if (known != names_.end()) return {TensorName{known->second}};
  if (const std::string copied = copied_value(tensor); !copied.empty())
    return {TensorName{learns(copied) ? detached(tensor, copied) : copied}};
  if (use != Use::reads && use != Use::looks)
    throw NoProgram{"it changes a tensor that is neither an input nor a part of the model",
                    "register it with register_buffer()"};
  return constant(tensor);
}

}  // namespace kindling
