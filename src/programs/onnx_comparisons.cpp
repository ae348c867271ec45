#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include "programs/onnx_operators.h"

namespace kindling {

// As LibTorch promotes: numbers, and tensors without dimensions, decide only between kinds of numbers.
at::ScalarType promoted_type(const OnnxCall& call, const std::vector<std::string>& arguments) {
  const auto stand_in = [&](const std::string& name) {
    if (call.is_tensor(name))
      return at::empty(std::vector<std::int64_t>(static_cast<std::size_t>(call.rank(name)), 0),
                       at::dtype(call.type_of(name)));
    const auto& value = call.argument(name).value;
    const auto* computed = std::get_if<NumberName>(&value);
    const bool is_real = computed != nullptr ? computed->kind == NumberName::Kind::floating
                                             : std::holds_alternative<double>(value);
    at::Tensor number = at::empty({}, at::dtype(std::holds_alternative<bool>(value) ? at::kBool
                                                : is_real                           ? at::kDouble
                                                                                    : at::kLong));
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  };
  at::Tensor first = stand_in(arguments.at(0));
  if (arguments.size() == 1) return first.scalar_type();
  return at::result_type(first, stand_in(arguments[1]));
}

namespace {

OnnxMapping comparison(const char* type, bool is_negated = false) {
  return [type, is_negated](OnnxCall& call) {
    at::ScalarType in = promoted_type(call, {"self", "other"});
    // Booleans have an order in PyTorch alone.
    if (in == at::kBool && std::string_view(type) != "Equal") in = at::kInt;
    const std::string result = call.add(type, {call.operand("self", in), call.operand("other", in)});
    call.give(is_negated ? call.add("Not", {result}) : result);
  };
}

OnnxMapping logical(const char* type) {
  return [type](OnnxCall& call) {
    call.give(call.add(type, {call.operand("self", at::kBool), call.operand("other", at::kBool)}));
  };
}

// Of booleans, or of the bits of integers.
OnnxMapping bitwise(const char* of_booleans, const char* of_bits) {
  return [=](OnnxCall& call) {
    const at::ScalarType type = call.result_type();
    const char* const name = type == at::kBool ? of_booleans : of_bits;
    call.give(call.add(name, {call.operand("self", type), call.operand("other", type)}));
  };
}

void logical_not(OnnxCall& call) { call.give(call.add("Not", {call.operand("self", at::kBool)})); }

void bitwise_not(OnnxCall& call) {
  const char* const type = call.result_type() == at::kBool ? "Not" : "BitwiseNot";
  call.give(call.add(type, {call.tensor("self")}));
}

OnnxMapping test_of(const char* type) {
  return [type](OnnxCall& call) {
    if (!at::isFloatingType(call.type_of("self"))) call.refuse("it is for floating-point tensors in ONNX");
    call.give(call.add(type, {call.tensor("self")}));
  };
}

void where(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  call.give(call.add("Where", {call.operand("condition", at::kBool), call.operand("self", type),
                               call.operand("other", type)}));
}

void masked_fill(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  call.give(call.add(
      "Where", {call.operand("mask", at::kBool), call.operand("value", type), call.operand("self", type)}));
}

}  // namespace

OnnxMappings onnx_comparisons() {
  OnnxMappings mappings{{"logical_not", &logical_not},
                        {"logical_and", logical("And")},
                        {"logical_or", logical("Or")},
                        {"logical_xor", logical("Xor")},
                        {"bitwise_not", &bitwise_not},
                        {"isnan", test_of("IsNaN")},
                        {"isinf", test_of("IsInf")},
                        {"where.self", &where},
                        {"where.ScalarOther", &where},
                        {"where.ScalarSelf", &where},
                        {"where.Scalar", &where},
                        {"masked_fill.Scalar", &masked_fill},
                        {"masked_fill.Tensor", &masked_fill}};
  for (const std::string overload : {"Tensor", "Scalar"}) {
    mappings.emplace_back("eq." + overload, comparison("Equal"));
    mappings.emplace_back("ne." + overload, comparison("Equal", true));
    mappings.emplace_back("lt." + overload, comparison("Less"));
    mappings.emplace_back("le." + overload, comparison("LessOrEqual"));
    mappings.emplace_back("gt." + overload, comparison("Greater"));
    mappings.emplace_back("ge." + overload, comparison("GreaterOrEqual"));
    for (const std::string name : {"bitwise_", "__"}) {
      const std::string end = name == "__" ? "__." : ".";
      mappings.emplace_back(name + "and" + end + overload, bitwise("And", "BitwiseAnd"));
      mappings.emplace_back(name + "or" + end + overload, bitwise("Or", "BitwiseOr"));
      mappings.emplace_back(name + "xor" + end + overload, bitwise("Xor", "BitwiseXor"));
    }
  }
  return mappings;
}

}  // namespace kindling
