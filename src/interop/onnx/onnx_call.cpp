#include "interop/onnx/onnx_call.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <complex>
#include <utility>

#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

template <class T, class Items>
ProgramArgument list_argument(ProgramList::Element element, const Items& items) {
  ProgramList list{element, {}};
  for (const auto& item : items) list.items.push_back({T{item}});
  return {std::move(list)};
}

ProgramArgument argument_of_default(const c10::IValue& value) {
  if (value.isBool()) return {value.toBool()};
  if (value.isInt()) return {value.toInt()};
  if (value.isDouble()) return {value.toDouble()};
  if (value.isString()) return {value.toStringRef()};
  if (value.isIntList())
    return list_argument<std::int64_t>(ProgramList::Element::integers, value.toIntVector());
  if (value.isDoubleList())
    return list_argument<double>(ProgramList::Element::floats, value.toDoubleVector());
  return {};
}

}  // namespace

std::string place_of(const ProgramNode& node) {
  return (node.layer.empty() ? "" : "layer " + one_line(node.layer) + ", ") + one_line(node.target);
}

OnnxCall::OnnxCall(const ProgramNode& node, const c10::FunctionSchema* schema, OnnxValues& values,
                   OnnxGraph& graph)
    : node_(node), values_(values), graph_(graph) {
  if (schema == nullptr) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      arguments_[std::to_string(i)] = node.inputs[i].argument;
    return;
  }
  for (const ProgramNode::Input& input : node.inputs) arguments_[input.name] = input.argument;
  for (const c10::Argument& argument : schema->arguments())
    if (!arguments_.contains(argument.name())) {
      if (!argument.default_value()) refuse("the argument " + json_string(argument.name()) + " is missing");
      arguments_[argument.name()] = argument_of_default(*argument.default_value());
    }
}

void OnnxCall::refuse(const std::string& found, const std::string& wanted, const std::string& remedy) const {
  throw CheckpointError({.place = place_of(node_), .found = found, .wanted = wanted, .remedy = remedy});
}

void OnnxCall::refuse_argument(const std::string& name, const std::string& wanted) const {
  refuse("its argument " + json_string(name) + " is not supported in ONNX", wanted);
}

const ProgramArgument& OnnxCall::argument(const std::string& name) const {
  const auto found = arguments_.find(name);
  if (found == arguments_.end()) refuse("it has no argument " + json_string(name));
  return found->second;
}

bool OnnxCall::has(const std::string& name) const {
  const auto found = arguments_.find(name);
  return found != arguments_.end() && !std::holds_alternative<std::monostate>(found->second.value);
}

bool OnnxCall::is_tensor(const std::string& name) const {
  const auto found = arguments_.find(name);
  return found != arguments_.end() && std::holds_alternative<TensorName>(found->second.value);
}

const std::string& OnnxCall::name_of(const std::string& name) const {
  const auto* tensor = std::get_if<TensorName>(&argument(name).value);
  if (tensor == nullptr) refuse_argument(name, "a tensor");
  return tensor->name;
}

std::string OnnxCall::tensor(const std::string& name) { return has(name) ? value_of(name_of(name)) : ""; }

bool OnnxCall::is_complex(const std::string& name) const {
  return is_tensor(name) && values_.is_complex(name_of(name));
}

bool OnnxCall::is_zero_part(at::ScalarType type) const {
  return part_ == OnnxPart::imaginary && at::isFloatingType(type);
}

std::string OnnxCall::operand(const std::string& name, at::ScalarType to) {
  const ProgramArgument& given = argument(name);
  if (const auto* number = std::get_if<std::complex<double>>(&given.value))
    return scalar(part_ == OnnxPart::real ? number->real() : number->imag(), to);
  if (is_zero_part(to) && !is_tensor(name)) return scalar(0, to);
  if (const auto* number = std::get_if<NumberName>(&given.value)) {
    using Kind = NumberName::Kind;
    const at::ScalarType from = number->kind == Kind::integer    ? at::kLong
                                : number->kind == Kind::floating ? at::kDouble
                                                                 : at::kBool;
    return cast(add("Squeeze", {values_.number(number->name)}), from, to);
  }
  if (const auto* number = std::get_if<std::int64_t>(&given.value)) return scalar(*number, to);
  if (const auto* number = std::get_if<double>(&given.value)) return scalar(*number, to);
  if (const auto* number = std::get_if<bool>(&given.value)) return scalar(*number, to);
  return typed_value(name_of(name), to);
}

std::string OnnxCall::typed_value(const std::string& name, at::ScalarType type) {
  const std::string value = value_of(name);
  if (is_zero_part(type) && !values_.is_complex(name))
    return add("Expand", {scalar(0, type), add("Shape", {value})});
  return cast(value, at::toRealValueType(scalar_type_of(values_.meta(name).type)), type);
}

bool OnnxCall::is_list(const std::string& name) const {
  return std::holds_alternative<ProgramList>(argument(name).value);
}

std::vector<std::string> OnnxCall::names(const std::string& name) const {
  const auto* list = std::get_if<ProgramList>(&argument(name).value);
  if (list == nullptr) refuse_argument(name, "a list of tensors");
  std::vector<std::string> names;
  for (const ProgramArgument& item : list->items)
    if (const auto* tensor = std::get_if<TensorName>(&item.value))
      names.push_back(tensor->name);
    else
      refuse_argument(name, "a list of tensors");
  return names;
}

std::vector<std::string> OnnxCall::tensors(const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& each : names(name)) found.push_back(value_of(each));
  return found;
}

std::vector<at::Tensor> OnnxCall::constants(const std::string& name) const {
  std::vector<at::Tensor> found;
  for (const std::string& each : names(name)) {
    const at::Tensor* const tensor = values_.constant(each);
    if (tensor == nullptr) refuse_argument(name, "weights");
    found.push_back(*tensor);
  }
  return found;
}

const ProgramTensor& OnnxCall::meta(const std::string& name) const { return values_.meta(name_of(name)); }

const at::Tensor* OnnxCall::constant(const std::string& name) const {
  return values_.constant(name_of(name));
}

at::ScalarType OnnxCall::type_of(const std::string& name) const {
  return at::toRealValueType(scalar_type_of(meta(name).type));
}

std::int64_t OnnxCall::integer(const std::string& name) const {
  if (const auto* number = std::get_if<std::int64_t>(&argument(name).value)) return *number;
  refuse_argument(name, "an integer that does not depend on sizes");
}

double OnnxCall::real(const std::string& name) const {
  if (const auto* number = std::get_if<double>(&argument(name).value)) return *number;
  if (const auto* number = std::get_if<bool>(&argument(name).value)) return *number ? 1 : 0;
  if (const auto* number = std::get_if<std::int64_t>(&argument(name).value))
    return static_cast<double>(*number);
  refuse_argument(name, "a number that does not depend on sizes");
}

bool OnnxCall::flag(const std::string& name) const {
  if (const auto* flag = std::get_if<bool>(&argument(name).value)) return *flag;
  refuse_argument(name, "true or false");
}

std::string OnnxCall::text(const std::string& name) const {
  if (const auto* text = std::get_if<std::string>(&argument(name).value)) return *text;
  refuse_argument(name, "a string");
}

at::ScalarType OnnxCall::type(const std::string& name, at::ScalarType otherwise) const {
  if (!has(name)) return otherwise;
  if (const auto* type = std::get_if<ProgramType>(&argument(name).value)) return scalar_type_of(*type);
  refuse_argument(name, "a dtype");
}

std::vector<std::int64_t> OnnxCall::integers(const std::string& name) const {
  if (!has(name)) return {};
  if (const auto* number = std::get_if<std::int64_t>(&argument(name).value)) return {*number};
  std::vector<std::int64_t> numbers;
  const auto* list = std::get_if<ProgramList>(&argument(name).value);
  if (list == nullptr) refuse_argument(name, "integers");
  for (const ProgramArgument& item : list->items)
    if (const auto* number = std::get_if<std::int64_t>(&item.value))
      numbers.push_back(*number);
    else
      refuse_argument(name, "integers that do not depend on sizes");
  return numbers;
}

std::vector<double> OnnxCall::reals(const std::string& name) const {
  if (!has(name)) return {};
  const auto* list = std::get_if<ProgramList>(&argument(name).value);
  if (list == nullptr) refuse_argument(name, "a list of numbers");
  std::vector<double> numbers;
  for (const ProgramArgument& item : list->items)
    if (const auto* number = std::get_if<double>(&item.value))
      numbers.push_back(*number);
    else
      refuse_argument(name, "numbers that do not depend on sizes");
  return numbers;
}

OnnxNumber OnnxCall::number(const std::string& name) {
  const ProgramArgument& given = argument(name);
  if (const auto* number = std::get_if<std::int64_t>(&given.value)) return *number;
  if (const auto* number = std::get_if<NumberName>(&given.value))
    return OnnxNumber(values_.number(number->name));
  refuse_argument(name, "an integer");
}

std::vector<OnnxNumber> OnnxCall::numbers(const std::string& name) {
  const auto* list = std::get_if<ProgramList>(&argument(name).value);
  if (list == nullptr) return {number(name)};
  std::vector<OnnxNumber> found;
  for (const ProgramArgument& item : list->items)
    if (const auto* number = std::get_if<std::int64_t>(&item.value))
      found.push_back(*number);
    else if (const auto* computed = std::get_if<NumberName>(&item.value))
      found.emplace_back(values_.number(computed->name));
    else
      refuse_argument(name, "integers");
  return found;
}

std::int64_t OnnxCall::wrapped(std::int64_t dim, std::int64_t rank) const {
  if (dim < 0) dim += std::max<std::int64_t>(rank, 1);
  if (dim < 0 || dim >= std::max<std::int64_t>(rank, 1)) refuse("its dimension is out of range");
  return dim;
}

std::vector<std::int64_t> OnnxCall::dims(const std::string& name, std::int64_t rank) const {
  std::vector<std::int64_t> found = integers(name);
  for (std::int64_t& dim : found) dim = wrapped(dim, rank);
  return found;
}

}  // namespace kindling
