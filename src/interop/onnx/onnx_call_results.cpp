#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "interop/onnx/onnx_call.h"
#include "interop/run/program_types.h"

namespace kindling {
namespace {

const std::string* name_of_result(const ProgramNode& node, std::size_t number) {
  if (number >= node.outputs.size()) return nullptr;
  const auto* name = std::get_if<TensorName>(&node.outputs[number].value);
  return name == nullptr ? nullptr : &name->name;
}

// ONNX operators that onnxruntime computes for float32 but not for float64.
const std::set<std::string> kWithoutFloat64{"Acos",
                                            "Asin",
                                            "Atan",
                                            "AveragePool",
                                            "Celu",
                                            "Conv",
                                            "ConvTranspose",
                                            "Cosh",
                                            "Elu",
                                            "Erf",
                                            "GRU",
                                            "Gelu",
                                            "GlobalAveragePool",
                                            "GlobalMaxPool",
                                            "HardSigmoid",
                                            "HardSwish",
                                            "InstanceNormalization",
                                            "LSTM",
                                            "LeakyRelu",
                                            "Mish",
                                            "PRelu",
                                            "RNN",
                                            "Resize",
                                            "Selu",
                                            "Sinh",
                                            "Softplus",
                                            "Tan"};

}  // namespace

const ProgramTensor& OnnxCall::result(std::size_t number) const {
  const std::string* const name = name_of_result(node_, number);
  if (name != nullptr) return values_.meta(*name);
  // An in-place call whose result is used only under its old name.
  if (number == 0 && is_tensor("self")) return meta("self");
  refuse("the program does not describe its result");
}

at::ScalarType OnnxCall::result_type(std::size_t number) const {
  return at::toRealValueType(scalar_type_of(result(number).type));
}

bool OnnxCall::is_complex_result(std::size_t number) const {
  return at::isComplexType(scalar_type_of(result(number).type));
}

bool OnnxCall::is_result_used(std::size_t number) const {
  const std::string* const name = name_of_result(node_, number);
  return name != nullptr && values_.is_used(*name);
}

std::vector<std::string> OnnxCall::add_all(const std::string& type, const std::vector<std::string>& inputs,
                                           const std::vector<OnnxAttribute>& attributes,
                                           std::size_t num_outputs) {
  if (kWithoutFloat64.contains(type) && result_type() == at::kDouble)
    refuse("onnxruntime has no kernel of " + type + " for float64", "float32",
           "convert the model with model.float() before torch.export");
  return graph_.add_all(type, inputs, attributes, num_outputs);
}

void OnnxCall::set_result(const std::string& value, std::size_t number) {
  if (const std::string* const name = name_of_result(node_, number)) values_.set(*name, value, part_);
  if (number == 0) first_results_[static_cast<std::size_t>(part_)] = value;
}

std::vector<std::string> OnnxCall::list_results() const {
  const auto* list = node_.outputs.empty() ? nullptr : std::get_if<ProgramList>(&node_.outputs[0].value);
  if (list == nullptr) refuse("it does not return a list");
  std::vector<std::string> names;
  for (const ProgramArgument& item : list->items) names.push_back(std::get<TensorName>(item.value).name);
  return names;
}

void OnnxCall::set_list_result(const std::vector<std::string>& values) {
  const std::vector<std::string> names = list_results();
  if (names.size() != values.size())
    refuse("the program has " + std::to_string(names.size()) + " results of it",
           std::to_string(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values_.set(names[i], values[i], part_);
}

void OnnxCall::set_result_to_argument(const std::string& name) {
  if (const std::string* const result = name_of_result(node_, 0)) values_.copy(*result, name_of(name));
}

void OnnxCall::set_number_result(const std::string& value) {
  if (node_.outputs.empty()) return;
  if (const auto* name = std::get_if<NumberName>(&node_.outputs[0].value))
    values_.set_number(name->name, value);
}

std::string OnnxCall::scalar(const c10::Scalar& value, at::ScalarType type) {
  return graph_.constant(at::scalar_tensor(value, at::dtype(type)));
}

std::string OnnxCall::int64s(const std::vector<std::int64_t>& numbers) {
  return graph_.constant(at::tensor(numbers, at::dtype(at::kLong)));
}

std::string OnnxCall::cast(const std::string& value, at::ScalarType from, at::ScalarType to) {
  return from == to ? value : add("Cast", {value}, {{"to", onnx_type_of(to)}});
}

std::string OnnxCall::permuted(const std::string& value, const std::vector<std::int64_t>& order) {
  return add("Transpose", {value}, {{"perm", order}});
}

std::string OnnxCall::swapped(const std::string& value, std::int64_t rank, std::int64_t first,
                              std::int64_t second) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::swap(order.at(static_cast<std::size_t>(first)), order.at(static_cast<std::size_t>(second)));
  return permuted(value, order);
}

std::string OnnxCall::vector_of(const std::vector<OnnxNumber>& numbers) {
  std::vector<std::string> parts;
  std::vector<std::int64_t> constants;
  const auto end_constants = [&] {
    if (!constants.empty()) parts.push_back(int64s(constants));
    constants.clear();
  };
  for (const OnnxNumber& number : numbers) {
    if (number.constant) {
      constants.push_back(*number.constant);
      continue;
    }
    end_constants();
    parts.push_back(number.value);
  }
  if (!constants.empty() || parts.empty()) parts.push_back(int64s(constants));
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", 0}});
}

OnnxNumber OnnxCall::size(const std::string& argument, std::int64_t dim) {
  const ProgramSize& size = meta(argument).sizes.at(static_cast<std::size_t>(dim));
  if (size.expression.empty()) return size.number;
  return OnnxNumber(add("Shape", {tensor(argument)}, {{"start", dim}, {"end", dim + 1}}));
}

std::string OnnxCall::reshaped(const std::string& value, const std::vector<OnnxNumber>& sizes) {
  // Without allowzero, a size of 0 means the size of the input.
  const bool has_zero = std::ranges::any_of(sizes, [](const OnnxNumber& size) { return size.constant == 0; });
  std::vector<OnnxAttribute> attributes;
  if (has_zero) attributes.emplace_back("allowzero", 1);
  return add("Reshape", {value, vector_of(sizes)}, attributes);
}

std::string OnnxCall::reshaped_to_result(const std::string& value) {
  std::vector<std::int64_t> sizes;
  for (const ProgramSize& size : result().sizes) sizes.push_back(size.expression.empty() ? size.number : -1);
  if (std::ranges::count(sizes, -1) > 1) refuse("more than one size of its result is not constant");
  return reshaped(value, sizes);
}

}  // namespace kindling
