#include "interop/onnx/onnx_operators.h"

// Numbers that programs compute from sizes: vectors of one number in the graph, int64, double or bool.
namespace kindling {
namespace {

using NumberKind = NumberName::Kind;

// Types are promoted as in Python: integers with integers, else floats.
bool is_real_number(const OnnxCall& call, const char* name) {
  const auto& value = call.argument(name).value;
  if (const auto* computed = std::get_if<NumberName>(&value)) return computed->kind == NumberKind::floating;
  return std::holds_alternative<double>(value);
}

at::ScalarType number_type(const OnnxCall& call) {
  return is_real_number(call, "0") || is_real_number(call, "1") ? at::kDouble : at::kLong;
}

std::string number_of(OnnxCall& call, const char* name, at::ScalarType type) {
  return call.add("Unsqueeze", {call.operand(name, type), call.int64s({0})});
}

OnnxMapping binary_numbers(const char* operation) {
  return [operation](OnnxCall& call) {
    const at::ScalarType type = number_type(call);
    call.set_number_result(call.add(operation, {number_of(call, "0", type), number_of(call, "1", type)}));
  };
}

// Towards minus infinity: ONNX's Mod has the sign of the divisor, as Python's.
void floor_divide_numbers(OnnxCall& call) {
  const at::ScalarType type = number_type(call);
  const std::string a = number_of(call, "0", type), b = number_of(call, "1", type);
  if (type == at::kDouble) return call.set_number_result(call.add("Floor", {call.add("Div", {a, b})}));
  call.set_number_result(call.add("Div", {call.add("Sub", {a, call.add("Mod", {a, b})}), b}));
}

void modulo_of_numbers(OnnxCall& call) {
  if (number_type(call) != at::kLong) call.refuse("ONNX supports it only for int64 tensors");
  call.set_number_result(call.add("Mod", {number_of(call, "0", at::kLong), number_of(call, "1", at::kLong)}));
}

void divide_numbers(OnnxCall& call) {
  call.set_number_result(
      call.add("Div", {number_of(call, "0", at::kDouble), number_of(call, "1", at::kDouble)}));
}

OnnxMapping binary_flags(const char* operation) {
  return [operation](OnnxCall& call) {
    call.set_number_result(
        call.add(operation, {number_of(call, "0", at::kBool), number_of(call, "1", at::kBool)}));
  };
}

void negate_flag(OnnxCall& call) {
  call.set_number_result(call.add("Not", {number_of(call, "0", at::kBool)}));
}

void negate_number(OnnxCall& call) {
  const at::ScalarType type = is_real_number(call, "0") ? at::kDouble : at::kLong;
  call.set_number_result(call.add("Neg", {number_of(call, "0", type)}));
}

void not_equal_numbers(OnnxCall& call) {
  const at::ScalarType type = number_type(call);
  call.set_number_result(
      call.add("Not", {call.add("Equal", {number_of(call, "0", type), number_of(call, "1", type)})}));
}

OnnxMapping to_integer(const char* rounding) {
  return [rounding](OnnxCall& call) {
    std::string x = number_of(call, "0", at::kDouble);
    if (*rounding != '\0') x = call.add(rounding, {x});
    call.set_number_result(call.cast(x, at::kDouble, at::kLong));  // truncates the fraction
  };
}

void to_real(OnnxCall& call) { call.set_number_result(number_of(call, "0", at::kDouble)); }

void root_of_number(OnnxCall& call) {
  call.set_number_result(call.add("Sqrt", {number_of(call, "0", at::kDouble)}));
}

void size_of_tensor(OnnxCall& call) {
  const std::int64_t dim = call.dim("1", call.rank("0"));
  call.set_number_result(call.add("Shape", {call.tensor("0")}, {{"start", dim}, {"end", dim + 1}}));
}

void number_of_values(OnnxCall& call) {
  call.set_number_result(call.add("Unsqueeze", {call.add("Size", {call.tensor("0")}), call.int64s({0})}));
}

// Assertions about sizes are dropped: ONNX has no equivalent.
void nothing(OnnxCall&) {}

}  // namespace

OnnxMappings onnx_numbers() {
  return {{"_operator.add", binary_numbers("Add")},
          {"_operator.sub", binary_numbers("Sub")},
          {"_operator.mul", binary_numbers("Mul")},
          {"_operator.floordiv", &floor_divide_numbers},
          {"_operator.mod", &modulo_of_numbers},
          {"_operator.truediv", &divide_numbers},
          {"_operator.neg", &negate_number},
          {"_operator.eq", binary_numbers("Equal")},
          {"_operator.ne", &not_equal_numbers},
          {"_operator.lt", binary_numbers("Less")},
          {"_operator.le", binary_numbers("LessOrEqual")},
          {"_operator.gt", binary_numbers("Greater")},
          {"_operator.ge", binary_numbers("GreaterOrEqual")},
          {"_operator.and_", binary_flags("And")},
          {"_operator.or_", binary_flags("Or")},
          {"torch.sym_not", &negate_flag},
          {"torch.sym_max", binary_numbers("Max")},
          {"torch.sym_min", binary_numbers("Min")},
          {"torch.sym_float", &to_real},
          {"torch.sym_int", to_integer("")},
          {"torch._sym_sqrt", &root_of_number},
          {"math.sqrt", &root_of_number},
          {"math.floor", to_integer("Floor")},
          {"math.ceil", to_integer("Ceil")},
          {"math.trunc", to_integer("")},
          {"torch.ops.aten.sym_size.int", &size_of_tensor},
          {"torch.ops.aten.sym_numel.default", &number_of_values},
          {"torch.ops.aten._assert_scalar.default", &nothing},
          {"torch.ops.aten._assert_tensor_metadata.default", &nothing},
          {"torch.ops.aten.sym_constrain_range_for_size.default", &nothing},
          {"torch.ops.aten.sym_constrain_range.default", &nothing}};
}

}  // namespace kindling
