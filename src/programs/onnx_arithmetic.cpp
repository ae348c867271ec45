#include <cmath>
#include <numbers>

#include "programs/onnx_operators.h"

namespace kindling {
namespace {

std::string self_of(OnnxCall& call) { return call.operand("self", call.result_type()); }
std::string other_of(OnnxCall& call) { return call.operand("other", call.result_type()); }

OnnxMapping unary_tensors(const char* type) {
  return [type](OnnxCall& call) { call.give(call.add(type, {self_of(call)})); };
}

OnnxMapping binary_tensors(const char* type) {
  return [type](OnnxCall& call) { call.give(call.add(type, {self_of(call), other_of(call)})); };
}

// log2 and the like: a factor behind an operator.
OnnxMapping unary_times(const char* type, double factor) {
  return [type, factor](OnnxCall& call) {
    call.give(call.add("Mul", {call.add(type, {self_of(call)}), call.scalar(factor, call.result_type())}));
  };
}

// A factor of an argument, mostly 1.
std::string scaled_tensors(OnnxCall& call, const std::string& value, const char* factor) {
  if (call.real(factor) == 1) return value;
  return call.add("Mul", {value, call.operand(factor, call.result_type())});
}

void add_or_tensors(OnnxCall& call) {  // of booleans a sum is "or"
  if (call.result_type() == at::kBool) return call.give(call.add("Or", {self_of(call), other_of(call)}));
  call.give(call.add("Add", {self_of(call), scaled_tensors(call, other_of(call), "alpha")}));
}

void subtract_tensors(OnnxCall& call) {
  call.give(call.add("Sub", {self_of(call), scaled_tensors(call, other_of(call), "alpha")}));
}

void subtract_from_tensors(OnnxCall& call) {
  call.give(call.add("Sub", {other_of(call), scaled_tensors(call, self_of(call), "alpha")}));
}

void multiply_tensors(OnnxCall& call) {
  const char* const type = call.result_type() == at::kBool ? "And" : "Mul";
  call.give(call.add(type, {self_of(call), other_of(call)}));
}

// Towards minus infinity; ONNX's Mod has the sign of the divisor, as PyTorch's remainder.
std::string floor_divided(OnnxCall& call, const std::string& a, const std::string& b, at::ScalarType type) {
  if (at::isFloatingType(type)) return call.add("Floor", {call.add("Div", {a, b})});
  return call.add("Div", {call.add("Sub", {a, call.add("Mod", {a, b})}), b});
}

std::string truncated(OnnxCall& call, const std::string& x) {
  return call.add("Mul", {call.add("Sign", {x}), call.add("Floor", {call.add("Abs", {x})})});
}

void divide_tensors(OnnxCall& call) {
  const std::string a = self_of(call), b = other_of(call);
  const at::ScalarType type = call.result_type();
  const std::string mode = call.has("rounding_mode") ? call.text("rounding_mode") : "";
  if (mode == "floor") return call.give(floor_divided(call, a, b, type));
  const std::string quotient = call.add("Div", {a, b});
  call.give(mode == "trunc" && at::isFloatingType(type) ? truncated(call, quotient) : quotient);
}

void floor_divide_tensors(OnnxCall& call) {
  call.give(floor_divided(call, self_of(call), other_of(call), call.result_type()));
}

void remainder_tensors(OnnxCall& call) {
  const std::string a = self_of(call), b = other_of(call);
  if (!at::isFloatingType(call.result_type())) return call.give(call.add("Mod", {a, b}));
  call.give(call.add("Sub", {a, call.add("Mul", {call.add("Floor", {call.add("Div", {a, b})}), b})}));
}

void fmod_tensors(OnnxCall& call) {
  call.give(call.add("Mod", {self_of(call), other_of(call)}, {{"fmod", 1}}));
}

void power_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call);
  const auto* number = std::get_if<std::int64_t>(&call.argument("exponent").value);
  if (number != nullptr && *number == 2) return call.give(call.add("Mul", {x, x}));
  call.give(call.add("Pow", {x, call.operand("exponent", type)}));
}

void square_tensors(OnnxCall& call) {
  const std::string x = self_of(call);
  call.give(call.add("Mul", {x, x}));
}

void inverse_root(OnnxCall& call) { call.give(call.add("Reciprocal", {call.add("Sqrt", {self_of(call)})})); }

void log_of_one_more(OnnxCall& call) {
  call.give(call.add("Log", {call.add("Add", {self_of(call), call.scalar(1, call.result_type())})}));
}

void exp_less_one(OnnxCall& call) {
  call.give(call.add("Sub", {call.add("Exp", {self_of(call)}), call.scalar(1, call.result_type())}));
}

void exp_of_two(OnnxCall& call) {
  call.give(call.add("Pow", {call.scalar(2, call.result_type()), self_of(call)}));
}

void complementary_erf(OnnxCall& call) {
  call.give(call.add("Sub", {call.scalar(1, call.result_type()), call.add("Erf", {self_of(call)})}));
}

void truncate_tensors(OnnxCall& call) {
  const std::string x = self_of(call);
  call.give(at::isFloatingType(call.result_type()) ? truncated(call, x) : x);
}

// Bounds are numbers or tensors, and either may be none.
void clamp_tensors(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  std::string x = self_of(call);
  if (call.has("min")) x = call.add("Max", {x, call.operand("min", type)});
  if (call.has("max")) x = call.add("Min", {x, call.operand("max", type)});
  call.give(x);
}

void add_product(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string product = call.add("Mul", {call.operand("tensor1", type), call.operand("tensor2", type)});
  call.give(call.add("Add", {self_of(call), scaled_tensors(call, product, "value")}));
}

void add_quotient(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string quotient =
      call.add("Div", {call.operand("tensor1", type), call.operand("tensor2", type)});
  call.give(call.add("Add", {self_of(call), scaled_tensors(call, quotient, "value")}));
}

void interpolate_between(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call);
  const std::string way = call.add("Sub", {call.operand("end", type), x});
  call.give(call.add("Add", {x, call.add("Mul", {call.operand("weight", type), way})}));
}

void append_overloads(OnnxMappings& mappings, const std::string& name,
                      const std::vector<std::string>& overloads, const OnnxMapping& mapping) {
  for (const std::string& overload : overloads) mappings.emplace_back(name + "." + overload, mapping);
}

}  // namespace

OnnxMappings onnx_arithmetic() {
  OnnxMappings mappings{{"exp", unary_tensors("Exp")},
                        {"log", unary_tensors("Log")},
                        {"sqrt", unary_tensors("Sqrt")},
                        {"abs", unary_tensors("Abs")},
                        {"neg", unary_tensors("Neg")},
                        {"erf", unary_tensors("Erf")},
                        {"sin", unary_tensors("Sin")},
                        {"cos", unary_tensors("Cos")},
                        {"tan", unary_tensors("Tan")},
                        {"asin", unary_tensors("Asin")},
                        {"acos", unary_tensors("Acos")},
                        {"atan", unary_tensors("Atan")},
                        {"sinh", unary_tensors("Sinh")},
                        {"cosh", unary_tensors("Cosh")},
                        {"floor", unary_tensors("Floor")},
                        {"ceil", unary_tensors("Ceil")},
                        {"round", unary_tensors("Round")},
                        {"sign", unary_tensors("Sign")},
                        {"reciprocal", unary_tensors("Reciprocal")},
                        {"log2", unary_times("Log", 1 / std::numbers::ln2)},
                        {"log10", unary_times("Log", 1 / std::numbers::ln10)},
                        {"log1p", &log_of_one_more},
                        {"expm1", &exp_less_one},
                        {"exp2", &exp_of_two},
                        {"erfc", &complementary_erf},
                        {"rsqrt", &inverse_root},
                        {"square", &square_tensors},
                        {"trunc", &truncate_tensors},
                        {"maximum", binary_tensors("Max")},
                        {"minimum", binary_tensors("Min")},
                        {"max.other", binary_tensors("Max")},
                        {"min.other", binary_tensors("Min")},
                        {"floor_divide", &floor_divide_tensors},
                        {"clamp", &clamp_tensors},
                        {"clamp.Tensor", &clamp_tensors},
                        {"clamp_min", &clamp_tensors},
                        {"clamp_max", &clamp_tensors},
                        {"addcmul", &add_product},
                        {"addcdiv", &add_quotient}};
  append_overloads(mappings, "add", {"Tensor", "Scalar"}, &add_or_tensors);
  append_overloads(mappings, "sub", {"Tensor", "Scalar"}, &subtract_tensors);
  append_overloads(mappings, "rsub", {"Tensor", "Scalar"}, &subtract_from_tensors);
  append_overloads(mappings, "mul", {"Tensor", "Scalar"}, &multiply_tensors);
  append_overloads(mappings, "div", {"Tensor", "Scalar", "Tensor_mode", "Scalar_mode"}, &divide_tensors);
  append_overloads(mappings, "remainder", {"Tensor", "Scalar"}, &remainder_tensors);
  append_overloads(mappings, "fmod", {"Tensor", "Scalar"}, &fmod_tensors);
  append_overloads(mappings, "pow", {"Tensor_Tensor", "Tensor_Scalar", "Scalar"}, &power_tensors);
  append_overloads(mappings, "lerp", {"Tensor", "Scalar"}, &interpolate_between);
  return mappings;
}

}  // namespace kindling
