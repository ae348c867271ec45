#include <complex>
#include <string>
#include <utility>

#include "interop/onnx/onnx_operators.h"

// Operators of complex tensors, which are pairs of real tensors in the graph.
namespace kindling {

OnnxComplex complex_operand(OnnxCall& call, const std::string& name) {
  OnnxComplex made;
  made.real = call.operand(name, call.result_type());
  call.set_part(OnnxPart::imaginary);
  made.imaginary = call.operand(name, call.result_type());
  call.set_part(OnnxPart::real);
  return made;
}

void set_complex_result(OnnxCall& call, const OnnxComplex& value) {
  call.set_result(value.real);
  call.set_part(OnnxPart::imaginary);
  call.set_result(value.imaginary);
  call.set_part(OnnxPart::real);
}

OnnxComplex complex_product(OnnxCall& call, const OnnxComplex& a, const OnnxComplex& b,
                            const OnnxProduct& product) {
  if (a.imaginary.empty() && b.imaginary.empty()) return {product(a.real, b.real), ""};
  if (b.imaginary.empty()) return {product(a.real, b.real), product(a.imaginary, b.real)};
  if (a.imaginary.empty()) return {product(a.real, b.real), product(a.real, b.imaginary)};
  return {call.add("Sub", {product(a.real, b.real), product(a.imaginary, b.imaginary)}),
          call.add("Add", {product(a.real, b.imaginary), product(a.imaginary, b.real)})};
}

OnnxComplex factor_of(OnnxCall& call, const std::string& name) {
  const bool is_complex =
      call.is_complex(name) || std::holds_alternative<std::complex<double>>(call.argument(name).value);
  return is_complex ? complex_operand(call, name) : OnnxComplex{call.operand(name, call.result_type()), ""};
}

namespace {

void add_complex(OnnxCall& call, const char* operation, const char* first, const char* second) {
  if (call.real("alpha") != 1) call.refuse("it scales complex numbers (alpha)", "", "multiply before");
  const OnnxComplex a = complex_operand(call, first), b = complex_operand(call, second);
  set_complex_result(
      call, {call.add(operation, {a.real, b.real}), call.add(operation, {a.imaginary, b.imaginary})});
}

OnnxMapping sum_of(const char* operation, const char* first, const char* second) {
  return [=](OnnxCall& call) { add_complex(call, operation, first, second); };
}

void multiply_complex(OnnxCall& call) {
  set_complex_result(call, complex_product(call, factor_of(call, "self"), factor_of(call, "other"),
                                           [&](const std::string& a, const std::string& b) {
                                             return call.add("Mul", {a, b});
                                           }));
}

void divide_complex(OnnxCall& call) {
  const OnnxComplex a = factor_of(call, "self"), b = factor_of(call, "other");
  if (!b.imaginary.empty() || call.has("rounding_mode")) call.refuse("it divides by complex numbers");
  set_complex_result(call, {call.add("Div", {a.real, b.real}), call.add("Div", {a.imaginary, b.real})});
}

OnnxMapping part_of(OnnxPart part) {
  return [part](OnnxCall& call) {
    call.set_part(part);
    const std::string value = call.tensor("self");
    call.set_part(OnnxPart::real);
    call.set_result(value);
  };
}

void conjugate(OnnxCall& call) {
  const OnnxComplex x = complex_operand(call, "self");
  set_complex_result(call, {x.real, call.add("Neg", {x.imaginary})});
}

void pairs_of(OnnxCall& call) {
  const OnnxComplex x = complex_operand(call, "self");
  const std::string last = call.int64s({-1});
  call.set_result(
      call.add("Concat", {call.add("Unsqueeze", {x.real, last}), call.add("Unsqueeze", {x.imaginary, last})},
               {{"axis", -1}}));
}

void complex_of_pairs(OnnxCall& call) {
  const std::string pairs = call.tensor("self");
  const auto part = [&](std::int64_t number) {
    return call.add("Gather", {pairs, call.scalar(number, at::kLong)}, {{"axis", -1}});
  };
  set_complex_result(call, {part(0), part(1)});
}

std::string shape_of_sum(OnnxCall& call, const std::string& a, const std::string& b) {
  return call.add("Shape", {call.add("Add", {a, b})});
}

void complex_of_parts(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string real = call.operand("real", type), imaginary = call.operand("imag", type),
                    sizes = shape_of_sum(call, real, imaginary);
  set_complex_result(call, {call.add("Expand", {real, sizes}), call.add("Expand", {imaginary, sizes})});
}

void complex_of_lengths(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string length = call.operand("abs", type), angle = call.operand("angle", type);
  set_complex_result(call, {call.add("Mul", {length, call.add("Cos", {angle})}),
                            call.add("Mul", {length, call.add("Sin", {angle})})});
}

void complex_length(OnnxCall& call) {
  const OnnxComplex x = complex_operand(call, "self");
  call.set_result(hypot_of(call, x.real, x.imaginary));
}

void complex_angle(OnnxCall& call) {
  const OnnxComplex x = complex_operand(call, "self");
  call.set_result(angle_of(call, x.imaginary, x.real));
}

void convert_complex(OnnxCall& call) {
  if (call.is_complex_result()) return set_complex_result(call, complex_operand(call, "self"));
  call.refuse("it drops the imaginary part", "", "call torch.real");
}

void run_by_parts(OnnxCall& call, const OnnxMapping& mapping) {
  for (const OnnxPart part : {OnnxPart::real, OnnxPart::imaginary}) {
    call.set_part(part);
    mapping(call);
  }
  call.set_part(OnnxPart::real);
}

// Padding with another number than 0 would add it to the imaginary part.
void pad_complex(OnnxCall& call) {
  if (call.has("value") && call.real("value") != 0)
    call.refuse("it pads complex numbers with another number than 0");
  run_by_parts(call, onnx_mappings().at(call.has("mode") ? "pad" : "constant_pad_nd"));
}

// Operators that do the same to both parts: numbers and real tensors that they take have no imaginary part.
constexpr const char* kByParts[] = {"view",
                                    "reshape",
                                    "_unsafe_view",
                                    "view_as",
                                    "reshape_as",
                                    "flatten.using_ints",
                                    "unflatten.int",
                                    "permute",
                                    "transpose.int",
                                    "swapdims",
                                    "swapaxes",
                                    "t",
                                    "mT",
                                    "numpy_T",
                                    "movedim.int",
                                    "movedim.intlist",
                                    "moveaxis.int",
                                    "squeeze",
                                    "squeeze.dim",
                                    "squeeze.dims",
                                    "unsqueeze",
                                    "expand",
                                    "broadcast_to",
                                    "expand_as",
                                    "repeat",
                                    "tile",
                                    "contiguous",
                                    "clone",
                                    "detach",
                                    "alias",
                                    "lift_fresh",
                                    "lift_fresh_copy",
                                    "cat",
                                    "concat",
                                    "concatenate",
                                    "stack",
                                    "split.Tensor",
                                    "split.sizes",
                                    "split_with_sizes",
                                    "chunk",
                                    "unbind.int",
                                    "select.int",
                                    "slice.Tensor",
                                    "narrow",
                                    "flip",
                                    "roll",
                                    "fft_fftshift",
                                    "fft_ifftshift",
                                    "index_select",
                                    "index.Tensor",
                                    "gather",
                                    "zeros",
                                    "new_zeros",
                                    "zeros_like",
                                    "zero_",
                                    "full",
                                    "new_full",
                                    "full_like",
                                    "empty.memory_format",
                                    "empty_like",
                                    "new_empty",
                                    "copy_",
                                    "where.self",
                                    "where.ScalarOther",
                                    "where.ScalarSelf",
                                    "masked_fill.Scalar",
                                    "neg",
                                    "sum",
                                    "sum.dim_IntList",
                                    "mean",
                                    "mean.dim"};

OnnxMapping by_parts(const OnnxMapping& mapping) {
  return [&mapping](OnnxCall& call) { run_by_parts(call, mapping); };
}

OnnxMappings complex_arithmetic() {
  return {{"add.Tensor", sum_of("Add", "self", "other")},
          {"add.Scalar", sum_of("Add", "self", "other")},
          {"sub.Tensor", sum_of("Sub", "self", "other")},
          {"sub.Scalar", sum_of("Sub", "self", "other")},
          {"rsub.Tensor", sum_of("Sub", "other", "self")},
          {"rsub.Scalar", sum_of("Sub", "other", "self")},
          {"mul.Tensor", &multiply_complex},
          {"mul.Scalar", &multiply_complex},
          {"div.Tensor", &divide_complex},
          {"div.Scalar", &divide_complex},
          {"real", part_of(OnnxPart::real)},
          {"imag", part_of(OnnxPart::imaginary)},
          {"_conj", &conjugate},
          {"conj", &conjugate},
          {"conj_physical", &conjugate},
          {"resolve_conj", &convert_complex},
          {"resolve_neg", &convert_complex},
          {"view_as_real", &pairs_of},
          {"view_as_complex", &complex_of_pairs},
          {"complex", &complex_of_parts},
          {"polar", &complex_of_lengths},
          {"abs", &complex_length},
          {"angle", &complex_angle},
          {"pad", &pad_complex},
          {"constant_pad_nd", &pad_complex},
          {"to.dtype", &convert_complex},
          {"to.dtype_layout", &convert_complex},
          {"to.device", &convert_complex},
          {"to.other", &convert_complex},
          {"_to_copy", &convert_complex}};
}

}  // namespace

const std::map<std::string, OnnxMapping>& onnx_complex_mappings() {
  static const std::map<std::string, OnnxMapping> all = [] {
    std::map<std::string, OnnxMapping> made;
    for (const auto kind : {&complex_arithmetic, &onnx_complex_products, &onnx_fourier})
      for (auto& [name, mapping] : kind()) made.emplace(name, std::move(mapping));
    for (const char* const name : kByParts) made.emplace(name, by_parts(onnx_mappings().at(name)));
    return made;
  }();
  return all;
}

}  // namespace kindling
