#include "interop/onnx/onnx_values.h"

#include <ATen/core/function_schema.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

template <class Map>
auto& found_in(Map& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end())
    throw CheckpointError(
        {.place = "the program", .found = json_string(name) + " is used before it is defined"});
  return found->second;
}

}  // namespace

std::string OnnxValues::tensor(const std::string& name, OnnxPart part) {
  Value& value = found_in(tensors_, name);
  const auto number = static_cast<std::size_t>(part);
  if (!value.names[number].empty()) return value.names[number];
  std::string& known = known_[{value.constant.unsafeGetTensorImpl(), number}];
  if (known.empty()) {
    at::Tensor added = value.constant;
    if (added.is_complex()) added = part == OnnxPart::real ? at::real(added) : at::imag(added).resolve_neg();
    known = graph_.constant(added, value.wanted_name);
    kept_.push_back(value.constant);
  }
  return value.names[number] = known;
}

std::string OnnxValues::number(const std::string& name) const { return found_in(numbers_, name); }

const at::Tensor* OnnxValues::constant(const std::string& name) const {
  const Value& value = found_in(tensors_, name);
  return value.constant.defined() ? &value.constant : nullptr;
}

bool OnnxValues::is_in_graph(const std::string& name) const {
  const Value& value = found_in(tensors_, name);
  return !value.names[0].empty() || !value.names[1].empty() ||
         known_.contains({value.constant.unsafeGetTensorImpl(), 0}) ||
         known_.contains({value.constant.unsafeGetTensorImpl(), 1});
}

const ProgramTensor& OnnxValues::meta(const std::string& name) const {
  const auto found = program_.tensors.find(name);
  if (found == program_.tensors.end())
    throw CheckpointError(
        {.place = "the program", .found = "it does not describe the tensor " + json_string(name)});
  return found->second;
}

bool OnnxValues::is_complex(const std::string& name) const {
  const ProgramType type = meta(name).type;
  return type == ProgramType::complex32 || type == ProgramType::complex64 || type == ProgramType::complex128;
}

namespace {

// Operators that may return their argument or a view of it although the schema does not say so.
bool may_return_argument(std::string_view name) {
  static const std::set<std::string_view> names{
      "aten::dropout",    "aten::feature_dropout", "aten::alpha_dropout",     "aten::feature_alpha_dropout",
      "aten::type_as",    "aten::einsum",          "aten::broadcast_tensors", "aten::meshgrid",
      "aten::atleast_1d", "aten::atleast_2d",      "aten::atleast_3d",        "aten::square"};
  return names.contains(name);
}

// Operators that return their argument itself; reshaping and conversion may copy.
bool returns_argument(std::string_view name) {
  return name == "aten::detach" || name == "aten::alias" || name == "aten::dropout" ||
         name == "aten::feature_dropout" || name == "aten::alpha_dropout" ||
         name == "aten::feature_alpha_dropout";
}

bool returns_view(const c10::FunctionSchema& schema) {
  return may_return_argument(schema.name()) ||
         std::ranges::any_of(schema.returns(),
                             [](const c10::Argument& result) { return result.alias_info() != nullptr; });
}

const c10::Argument* written_argument(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return &argument;
  return nullptr;
}

}  // namespace

std::vector<std::string> tensor_names_in(const ProgramArgument& argument) {
  if (const auto* name = std::get_if<TensorName>(&argument.value)) return {name->name};
  std::vector<std::string> names;
  if (const auto* list = std::get_if<ProgramList>(&argument.value))
    for (const ProgramArgument& item : list->items)
      if (const auto* name = std::get_if<TensorName>(&item.value)) names.push_back(name->name);
  return names;
}

const std::string* written_tensor(const ProgramNode& node, const c10::FunctionSchema& schema) {
  const c10::Argument* const argument = written_argument(schema);
  if (argument == nullptr) return nullptr;
  if (argument->name() == "self")
    for (const ProgramNode::Input& input : node.inputs)
      if (const auto* name = std::get_if<TensorName>(&input.argument.value);
          name != nullptr && input.name == "self")
        return &name->name;
  throw CheckpointError({.place = one_line(node.target),
                         .found = "it writes to its argument \"" + argument->name() + "\"",
                         .wanted = "operators that write to no argument but their first"});
}

void SharedMemory::note(const ProgramNode& node, const c10::FunctionSchema& schema) {
  for (const ProgramArgument& output : node.outputs)
    for (const std::string& name : tensor_names_in(output)) add(name, node, schema);
}

void SharedMemory::add(const std::string& name, const ProgramNode& node, const c10::FunctionSchema& schema) {
  places_[name] = {name, name};
  if (!returns_view(schema)) return;
  const bool is_same = returns_argument(schema.name()) || written_argument(schema) != nullptr;
  for (const ProgramNode::Input& input : node.inputs)
    for (const std::string& given : tensor_names_in(input.argument)) {
      const auto found = places_.find(given);
      if (found == places_.end()) continue;
      // Merges the memories of several arguments, because it is unknown which of them a result shares.
      const std::string memory = found->second.memory, own = places_[name].memory;
      if (is_same && own == name) places_[name].view = found->second.view;
      for (auto& [other, place] : places_)
        if (place.memory == own) place.memory = memory;
      if (is_same) return;
    }
}

std::vector<std::string> SharedMemory::same_as(const std::string& name) const {
  std::vector<std::string> names;
  const auto found = places_.find(name);
  if (found == places_.end()) return {name};
  for (const auto& [other, place] : places_)
    if (place.view == found->second.view) names.push_back(other);
  return names;
}

std::vector<std::string> SharedMemory::other_views_of(const std::string& name) const {
  std::vector<std::string> names;
  const auto found = places_.find(name);
  if (found == places_.end()) return names;
  for (const auto& [other, place] : places_)
    if (place.memory == found->second.memory && place.view != found->second.view) names.push_back(other);
  return names;
}

bool SharedMemory::may_share(const std::string& one, const std::string& other) const {
  const auto first = places_.find(one), second = places_.find(other);
  return first != places_.end() && second != places_.end() && first->second.memory == second->second.memory;
}

void SharedMemory::note_repeated(const ProgramNode& node,
                                 const std::map<std::string, ProgramTensor>& tensors) {
  const auto count_of = [&](const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? 0 : num_elements_of(found->second);
  };
  for (const ProgramArgument& output : node.outputs)
    for (const std::string& made : tensor_names_in(output))
      for (const ProgramNode::Input& input : node.inputs)
        for (const std::string& given : tensor_names_in(input.argument))
          if (given != made && may_share(made, given) &&
              (count_of(made) > count_of(given) || is_repeated(given)))
            repeated_.insert(made);
}

std::int64_t num_elements_of(const ProgramTensor& tensor) {
  std::int64_t count = 1;
  for (const ProgramSize& size : tensor.sizes) count *= size.number;
  return count;
}

}  // namespace kindling
