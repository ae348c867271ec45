#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "interop/onnx/onnx_operators.h"

// Operators that compute each value of their result from one value of each operand.
namespace kindling {
namespace {

std::string other_of(OnnxCall& call) { return call.operand("other", call.result_type()); }

// Promotes types like LibTorch: numbers and tensors without dimensions determine only the category of the
// dtype.
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

// --- operators that are one of ONNX's ---

enum class OperandTypes {
  result,    // all operands are converted to the result's dtype
  booleans,  // to bool
  promoted,  // to the dtype in which PyTorch compares them
};

// One line of the table: the ONNX operator, with the same operands, that computes what some operators of ATen
// do, and the simple variants of that.
struct PointwiseRow {
  std::vector<std::string> operators{};  // "add.Tensor"
  const char* type = "";                 // of ONNX
  std::vector<std::string> operands{"self"};
  OperandTypes types = OperandTypes::result;
  const char* type_of_booleans = nullptr;  // the ONNX operator for boolean results, if it differs
  bool is_negated = false;                 // Not is applied to the result
  const char* alpha = nullptr;             // the argument, a number, that is ONNX's attribute alpha
};

std::vector<std::string> operands_of(OnnxCall& call, const PointwiseRow& row) {
  at::ScalarType type = row.types == OperandTypes::booleans   ? at::kBool
                        : row.types == OperandTypes::promoted ? promoted_type(call, row.operands)
                                                              : call.result_type();
  // ONNX does not order booleans.
  if (row.types == OperandTypes::promoted && type == at::kBool && std::string_view(row.type) != "Equal")
    type = at::kInt;
  std::vector<std::string> operands;
  for (const std::string& name : row.operands) operands.push_back(call.operand(name, type));
  return operands;
}

void add_row(OnnxCall& call, const PointwiseRow& row) {
  const bool is_boolean = row.type_of_booleans != nullptr && call.result_type() == at::kBool;
  std::vector<OnnxAttribute> attributes;
  if (row.alpha != nullptr) attributes.push_back({"alpha", call.real(row.alpha)});
  std::string result =
      call.add(is_boolean ? row.type_of_booleans : row.type, operands_of(call, row), attributes);
  if (row.is_negated) result = call.add("Not", {result});
  call.set_result(result);
}

const std::vector<PointwiseRow>& pointwise_rows() {
  static const std::vector<std::string> both{"self", "other"};
  static const std::vector<PointwiseRow> rows{
      {.operators = {"sigmoid"}, .type = "Sigmoid"},
      {.operators = {"tanh"}, .type = "Tanh"},
      {.operators = {"selu"}, .type = "Selu"},
      {.operators = {"mish"}, .type = "Mish"},
      {.operators = {"hardswish"}, .type = "HardSwish"},
      {.operators = {"celu"}, .type = "Celu", .alpha = "alpha"},
      {.operators = {"leaky_relu"}, .type = "LeakyRelu", .alpha = "negative_slope"},

      {.operators = {"exp"}, .type = "Exp"},
      {.operators = {"log"}, .type = "Log"},
      {.operators = {"sqrt"}, .type = "Sqrt"},
      {.operators = {"abs"}, .type = "Abs"},
      {.operators = {"neg"}, .type = "Neg"},
      {.operators = {"erf"}, .type = "Erf"},
      {.operators = {"sin"}, .type = "Sin"},
      {.operators = {"cos"}, .type = "Cos"},
      {.operators = {"tan"}, .type = "Tan"},
      {.operators = {"asin"}, .type = "Asin"},
      {.operators = {"acos"}, .type = "Acos"},
      {.operators = {"atan"}, .type = "Atan"},
      {.operators = {"sinh"}, .type = "Sinh"},
      {.operators = {"cosh"}, .type = "Cosh"},
      {.operators = {"reciprocal"}, .type = "Reciprocal"},
      {.operators = {"mul.Tensor", "mul.Scalar"}, .type = "Mul", .operands = both, .type_of_booleans = "And"},
      {.operators = {"maximum", "max.other"}, .type = "Max", .operands = both, .type_of_booleans = "Or"},
      {.operators = {"minimum", "min.other"}, .type = "Min", .operands = both, .type_of_booleans = "And"},

      {.operators = {"eq.Tensor", "eq.Scalar"},
       .type = "Equal",
       .operands = both,
       .types = OperandTypes::promoted},
      {.operators = {"ne.Tensor", "ne.Scalar"},
       .type = "Equal",
       .operands = both,
       .types = OperandTypes::promoted,
       .is_negated = true},
      {.operators = {"lt.Tensor", "lt.Scalar"},
       .type = "Less",
       .operands = both,
       .types = OperandTypes::promoted},
      {.operators = {"le.Tensor", "le.Scalar"},
       .type = "LessOrEqual",
       .operands = both,
       .types = OperandTypes::promoted},
      {.operators = {"gt.Tensor", "gt.Scalar"},
       .type = "Greater",
       .operands = both,
       .types = OperandTypes::promoted},
      {.operators = {"ge.Tensor", "ge.Scalar"},
       .type = "GreaterOrEqual",
       .operands = both,
       .types = OperandTypes::promoted},
      {.operators = {"logical_not"}, .type = "Not", .types = OperandTypes::booleans},
      {.operators = {"logical_and"}, .type = "And", .operands = both, .types = OperandTypes::booleans},
      {.operators = {"logical_or"}, .type = "Or", .operands = both, .types = OperandTypes::booleans},
      {.operators = {"logical_xor"}, .type = "Xor", .operands = both, .types = OperandTypes::booleans},
      {.operators = {"bitwise_not"}, .type = "BitwiseNot", .type_of_booleans = "Not"},
      {.operators = {"bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar"},
       .type = "BitwiseAnd",
       .operands = both,
       .type_of_booleans = "And"},
      {.operators = {"bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar"},
       .type = "BitwiseOr",
       .operands = both,
       .type_of_booleans = "Or"},
      {.operators = {"bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor", "__xor__.Scalar"},
       .type = "BitwiseXor",
       .operands = both,
       .type_of_booleans = "Xor"},
  };
  return rows;
}

OnnxMapping select_between(const char* condition, const char* first, const char* second) {
  return [=](OnnxCall& call) {
    const at::ScalarType type = call.result_type();
    call.set_result(selected(call, call.operand(condition, at::kBool), call.operand(first, type),
                             call.operand(second, type)));
  };
}

// --- arithmetic ---

void add_or_tensors(OnnxCall& call) {  // the sum of booleans is "or"
  if (call.result_type() == at::kBool)
    return call.set_result(call.add("Or", {self_of(call), other_of(call)}));
  call.set_result(call.add("Add", {self_of(call), times_argument(call, other_of(call), "alpha")}));
}

void subtract_tensors(OnnxCall& call) {
  call.set_result(call.add("Sub", {self_of(call), times_argument(call, other_of(call), "alpha")}));
}

void subtract_from_tensors(OnnxCall& call) {
  call.set_result(call.add("Sub", {other_of(call), times_argument(call, self_of(call), "alpha")}));
}

// The exact rest of a floating-point division, which has the sign of the dividend, and whether that is not
// the sign of the divisor.
std::pair<std::string, std::string> rest_of_division(OnnxCall& call, const std::string& a,
                                                     const std::string& b, at::ScalarType type) {
  const std::string zero = call.scalar(0, type), rest = call.add("Mod", {a, b}, {{"fmod", 1}});
  const std::string has_other_sign =
      call.add("Xor", {call.add("Less", {rest, zero}), call.add("Less", {b, zero})});
  const std::string is_zero = call.add("Equal", {rest, zero});
  return {rest, call.add("And", {call.add("Not", {is_zero}), has_other_sign})};
}

// As PyTorch computes it, from the exact rest: 1 // 0.1 is 9.
std::string floor_divided_floats(OnnxCall& call, const std::string& a, const std::string& b,
                                 at::ScalarType type) {
  const auto [rest, is_below] = rest_of_division(call, a, b, type);
  const std::string exact = call.add("Div", {call.add("Sub", {a, rest}), b}),
                    quotient = call.add("Sub", {exact, call.cast(is_below, at::kBool, type)}),
                    whole = call.add("Floor", {quotient});
  const std::string is_far =
      call.add("Greater", {call.add("Sub", {quotient, whole}), call.scalar(0.5, type)});
  return call.add("Where", {call.add("Equal", {b, call.scalar(0, type)}), call.add("Div", {a, b}),
                            call.add("Add", {whole, call.cast(is_far, at::kBool, type)})});
}

// Towards minus infinity; ONNX's Mod has the sign of the divisor, as PyTorch's remainder.
std::string floor_divided(OnnxCall& call, const std::string& a, const std::string& b, at::ScalarType type) {
  if (at::isFloatingType(type)) return floor_divided_floats(call, a, b, type);
  return call.add("Div", {call.add("Sub", {a, call.add("Mod", {a, b})}), b});
}

std::string truncated(OnnxCall& call, const std::string& x) {
  return call.add("Mul", {call.add("Sign", {x}), call.add("Floor", {call.add("Abs", {x})})});
}

void divide_tensors(OnnxCall& call) {
  const std::string a = self_of(call), b = other_of(call);
  const at::ScalarType type = call.result_type();
  const std::string mode = call.has("rounding_mode") ? call.text("rounding_mode") : "";
  if (mode == "floor") return call.set_result(floor_divided(call, a, b, type));
  const std::string quotient = call.add("Div", {a, b});
  call.set_result(mode == "trunc" && at::isFloatingType(type) ? truncated(call, quotient) : quotient);
}

void floor_divide_tensors(OnnxCall& call) {
  call.set_result(floor_divided(call, self_of(call), other_of(call), call.result_type()));
}

void remainder_tensors(OnnxCall& call) {
  const std::string a = self_of(call), b = other_of(call);
  if (!at::isFloatingType(call.result_type())) return call.set_result(call.add("Mod", {a, b}));
  const auto [rest, is_below] = rest_of_division(call, a, b, call.result_type());
  call.set_result(call.add("Where", {is_below, call.add("Add", {rest, b}), rest}));
}

void fmod_tensors(OnnxCall& call) {
  call.set_result(call.add("Mod", {self_of(call), other_of(call)}, {{"fmod", 1}}));
}

void power_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call);
  const auto* number = std::get_if<std::int64_t>(&call.argument("exponent").value);
  if (number != nullptr && *number == 2) return call.set_result(call.add("Mul", {x, x}));
  call.set_result(call.add("Pow", {x, call.operand("exponent", type)}));
}

void square_tensors(OnnxCall& call) {
  const std::string x = self_of(call);
  call.set_result(call.add("Mul", {x, x}));
}

void rsqrt_tensors(OnnxCall& call) {
  call.set_result(call.add("Reciprocal", {call.add("Sqrt", {self_of(call)})}));
}

// log(1 + x) with the digits of small x: log(u) x / (u - 1) for the rounded u = 1 + x (Kahan).
void log1p_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call), one = call.scalar(1, type), u = call.add("Add", {x, one}),
                    log = call.add("Log", {u}), difference = call.add("Sub", {u, one}),
                    exact = call.add("Mul", {log, call.add("Div", {x, difference})});
  const std::string is_small = call.add("Equal", {u, one}), is_infinite = call.add("IsInf", {u});
  call.set_result(call.add("Where", {is_small, x, call.add("Where", {is_infinite, log, exact})}));
}

// exp(x) - 1 with the digits of small x: (u - 1) x / log(u) for the rounded u = exp(x) (Kahan).
void expm1_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call), one = call.scalar(1, type), u = call.add("Exp", {x}),
                    difference = call.add("Sub", {u, one}),
                    exact = call.add("Mul", {difference, call.add("Div", {x, call.add("Log", {u})})});
  const std::string is_far = call.add("Greater", {call.add("Abs", {x}), call.scalar(1, type)});
  call.set_result(
      call.add("Where", {call.add("Equal", {u, one}), x, call.add("Where", {is_far, difference, exact})}));
}

// Exact for powers of the base, as PyTorch's.
OnnxMapping log_of_base(double base) {
  return [base](OnnxCall& call) {
    const at::ScalarType type = call.result_type();
    const std::string x = self_of(call), log = times(call, call.add("Log", {x}), 1 / std::log(base)),
                      whole = call.add("Round", {log}),
                      is_power = call.add("Equal", {call.add("Pow", {call.scalar(base, type), whole}), x});
    call.set_result(call.add("Where", {is_power, whole, log}));
  };
}

// PyTorch's sign of NaN is 0.
void sign_of_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call), sign = call.add("Sign", {x});
  call.set_result(at::isFloatingType(type)
                      ? call.add("Where", {call.add("IsNaN", {x}), call.scalar(0, type), sign})
                      : sign);
}

// log(exp(a) + exp(b)); the larger one for infinite numbers.
void logaddexp_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string a = self_of(call), b = other_of(call), larger = call.add("Max", {a, b}),
                    apart = call.add("Neg", {call.add("Abs", {call.add("Sub", {a, b})})}),
                    sum = call.add("Add", {larger, call.add("Softplus", {apart})});
  const std::string is_infinite = call.add(
      "Equal", {call.add("Abs", {larger}), call.scalar(std::numeric_limits<double>::infinity(), type)});
  call.set_result(call.add("Where", {is_infinite, larger, sum}));
}

void hypot_tensors(OnnxCall& call) { call.set_result(hypot_of(call, self_of(call), other_of(call))); }

void fraction_of_tensors(OnnxCall& call) {
  const std::string x = self_of(call);
  call.set_result(call.add("Sub", {x, truncated(call, x)}));
}

// Absent numbers: 0 for NaN, the largest numbers of the type for infinity.
void nan_to_num(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call);
  if (!at::isFloatingType(type)) return call.set_result(call.add("Identity", {x}));
  const double largest = type == at::kDouble ? std::numeric_limits<double>::max()
                         : type == at::kHalf ? 65504
                                             : static_cast<double>(std::numeric_limits<float>::max());
  if (type == at::kBFloat16) call.refuse("it is of bfloat16");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto number = [&](const char* name, double otherwise) {
    return call.scalar(call.has(name) ? call.real(name) : otherwise, type);
  };
  std::string result = call.add("Where", {call.add("IsNaN", {x}), number("nan", 0), x});
  result = call.add(
      "Where", {call.add("Equal", {x, call.scalar(kInfinity, type)}), number("posinf", largest), result});
  call.set_result(call.add(
      "Where", {call.add("Equal", {x, call.scalar(-kInfinity, type)}), number("neginf", -largest), result}));
}

void exp2_tensors(OnnxCall& call) {
  call.set_result(call.add("Pow", {call.scalar(2, call.result_type()), self_of(call)}));
}

void erfc_tensors(OnnxCall& call) {
  call.set_result(call.add("Sub", {call.scalar(1, call.result_type()), call.add("Erf", {self_of(call)})}));
}

void truncate_tensors(OnnxCall& call) {
  const std::string x = self_of(call);
  call.set_result(at::isFloatingType(call.result_type()) ? truncated(call, x) : x);
}

// ONNX rounds only floats, and PyTorch keeps integers.
OnnxMapping round_with(const char* type) {
  return [type](OnnxCall& call) {
    const std::string x = self_of(call);
    call.set_result(at::isFloatingType(call.result_type()) ? call.add(type, {x}) : x);
  };
}

// Bounds are numbers or tensors, and either may be absent.
void clamp_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  std::string x = self_of(call);
  if (call.has("min")) x = call.add("Max", {x, call.operand("min", type)});
  if (call.has("max")) x = call.add("Min", {x, call.operand("max", type)});
  call.set_result(x);
}

void add_product(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string product = call.add("Mul", {call.operand("tensor1", type), call.operand("tensor2", type)});
  call.set_result(call.add("Add", {self_of(call), times_argument(call, product, "value")}));
}

void add_quotient(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string quotient =
      call.add("Div", {call.operand("tensor1", type), call.operand("tensor2", type)});
  call.set_result(call.add("Add", {self_of(call), times_argument(call, quotient, "value")}));
}

void interpolate_between(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call);
  const std::string difference = call.add("Sub", {call.operand("end", type), x});
  call.set_result(call.add("Add", {x, call.add("Mul", {call.operand("weight", type), difference})}));
}

void angle_of_tensors(OnnxCall& call) { call.set_result(angle_of(call, self_of(call), other_of(call))); }

void append_overloads(OnnxMappings& mappings, const std::string& name,
                      const std::vector<std::string>& overloads, const OnnxMapping& mapping) {
  for (const std::string& overload : overloads) mappings.emplace_back(name + "." + overload, mapping);
}

// --- tests of values ---

OnnxMapping float_test(const char* type) {
  return [type](OnnxCall& call) {
    if (!at::isFloatingType(call.type_of("self")))
      call.refuse("ONNX supports it only for floating-point tensors");
    call.set_result(call.add(type, {call.tensor("self")}));
  };
}

}  // namespace

std::string selected(OnnxCall& call, const std::string& condition, const std::string& first,
                     const std::string& second) {
  if (call.result_type() != at::kBool) return call.add("Where", {condition, first, second});
  const std::string others = call.add("And", {call.add("Not", {condition}), second});
  return call.add("Or", {call.add("And", {condition, first}), others});
}

std::string hypot_of(OnnxCall& call, const std::string& first, const std::string& second) {
  const at::ScalarType type = call.result_type();
  const std::string a = call.add("Abs", {first}), b = call.add("Abs", {second}),
                    larger = call.add("Max", {a, b}),
                    ratio = call.add("Div", {call.add("Min", {a, b}), larger}),
                    root = call.add(
                        "Sqrt", {call.add("Add", {call.scalar(1, type), call.add("Mul", {ratio, ratio})})});
  const std::string is_zero = call.add("Equal", {larger, call.scalar(0, type)});
  const std::string finite = call.add("Where", {is_zero, larger, call.add("Mul", {larger, root})});
  // Also where the other one is NaN.
  const std::string is_infinite = call.add("Or", {call.add("IsInf", {a}), call.add("IsInf", {b})});
  const std::string infinity = call.scalar(std::numeric_limits<double>::infinity(), type);
  return call.add("Where", {is_infinite, infinity, finite});
}

// The quotients of two infinite numbers and of two zeros are NaN, so others replace them. onnxruntime's Where
// keeps the sign of zero in its last operand only.
std::string angle_of(OnnxCall& call, const std::string& y, const std::string& x) {
  const at::ScalarType type = call.result_type();
  const std::string zero = call.scalar(0, type);
  const auto is_negative = [&](const std::string& value) {
    const std::string reciprocal = call.add("Reciprocal", {value}),
                      is_zero = call.add("Equal", {value, zero}), is_below = call.add("Less", {value, zero});
    return call.add("Or", {is_below, call.add("And", {is_zero, call.add("Less", {reciprocal, zero})})});
  };
  const std::string are_zero = call.add("And", {call.add("Equal", {y, zero}), call.add("Equal", {x, zero})});
  const std::string are_infinite = call.add("And", {call.add("IsInf", {y}), call.add("IsInf", {x})});
  const auto sign_if_infinite = [&](const std::string& value) {
    return call.add("Where", {are_infinite, call.add("Sign", {value}), value});
  };
  const std::string divisor = sign_if_infinite(call.add("Where", {are_zero, call.scalar(1, type), x}));
  const std::string angle = call.add("Atan", {call.add("Div", {sign_if_infinite(y), divisor})}),
                    turn = call.add("Where", {is_negative(y), call.scalar(-std::numbers::pi, type),
                                              call.scalar(std::numbers::pi, type)});
  return call.add("Where", {is_negative(x), call.add("Add", {angle, turn}), angle});
}

OnnxMappings onnx_pointwise() {
  OnnxMappings mappings{{"log1p", &log1p_tensors},
                        {"log2", log_of_base(2)},
                        {"log10", log_of_base(10)},
                        {"sign", &sign_of_tensors},
                        {"logaddexp", &logaddexp_tensors},
                        {"hypot", &hypot_tensors},
                        {"atan2", &angle_of_tensors},
                        {"frac", &fraction_of_tensors},
                        {"nan_to_num", &nan_to_num},
                        {"expm1", &expm1_tensors},
                        {"exp2", &exp2_tensors},
                        {"erfc", &erfc_tensors},
                        {"rsqrt", &rsqrt_tensors},
                        {"square", &square_tensors},
                        {"trunc", &truncate_tensors},
                        {"floor", round_with("Floor")},
                        {"ceil", round_with("Ceil")},
                        {"round", round_with("Round")},
                        {"floor_divide", &floor_divide_tensors},
                        {"clamp", &clamp_tensors},
                        {"clamp.Tensor", &clamp_tensors},
                        {"clamp_min", &clamp_tensors},
                        {"clamp_max", &clamp_tensors},
                        {"addcmul", &add_product},
                        {"addcdiv", &add_quotient},
                        {"isnan", float_test("IsNaN")},
                        {"isinf", float_test("IsInf")}};
  append_overloads(mappings, "where", {"self", "ScalarOther", "ScalarSelf", "Scalar"},
                   select_between("condition", "self", "other"));
  append_overloads(mappings, "masked_fill", {"Scalar", "Tensor"}, select_between("mask", "value", "self"));
  append_overloads(mappings, "add", {"Tensor", "Scalar"}, &add_or_tensors);
  append_overloads(mappings, "sub", {"Tensor", "Scalar"}, &subtract_tensors);
  append_overloads(mappings, "rsub", {"Tensor", "Scalar"}, &subtract_from_tensors);
  append_overloads(mappings, "div", {"Tensor", "Scalar", "Tensor_mode", "Scalar_mode"}, &divide_tensors);
  append_overloads(mappings, "remainder", {"Tensor", "Scalar"}, &remainder_tensors);
  append_overloads(mappings, "fmod", {"Tensor", "Scalar"}, &fmod_tensors);
  append_overloads(mappings, "pow", {"Tensor_Tensor", "Tensor_Scalar", "Scalar"}, &power_tensors);
  append_overloads(mappings, "lerp", {"Tensor", "Scalar"}, &interpolate_between);
  for (const PointwiseRow& row : pointwise_rows())
    for (const std::string& name : row.operators)
      mappings.emplace_back(name, [&row](OnnxCall& call) { add_row(call, row); });
  return mappings;
}

}  // namespace kindling
