#include <algorithm>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

void matrix_product(OnnxCall& call) {
  const char* const other = call.has("mat2")     ? "mat2"
                            : call.has("vec")    ? "vec"
                            : call.has("tensor") ? "tensor"
                                                 : "other";
  call.set_result(call.add("MatMul", {call.tensor("self"), call.tensor(other)}));
}

void linear(OnnxCall& call) {
  const std::string x = call.tensor("input"), weight = call.tensor("weight");
  const std::string bias = call.has("bias") ? call.tensor("bias") : "";
  if (call.rank("input") == 2 && call.rank("weight") == 2)
    return call.set_result(call.add("Gemm", {x, weight, bias}, {{"transB", 1}}));
  const std::string turned = call.rank("weight") == 2 ? call.permuted(weight, {1, 0}) : weight;
  const std::string product = call.add("MatMul", {x, turned});
  call.set_result(bias.empty() ? product : call.add("Add", {product, bias}));
}

void add_matrix_product(OnnxCall& call) {
  call.set_result(call.add("Gemm", {call.tensor("mat1"), call.tensor("mat2"), call.tensor("self")},
                           {{"alpha", call.real("alpha")}, {"beta", call.real("beta")}}));
}

void add_batched_product(OnnxCall& call) {
  const std::string product = call.add("MatMul", {call.tensor("batch1"), call.tensor("batch2")});
  call.set_result(call.add(
      "Add", {times_argument(call, call.tensor("self"), "beta"), times_argument(call, product, "alpha")}));
}

void einsum(OnnxCall& call) {
  std::string equation = call.text("equation");
  std::erase(equation, ' ');
  call.set_result(call.add("Einsum", call.tensors("tensors"), {{"equation", equation}}));
}

// Sums over pairs of dimensions; the others of both tensors stay, in order.
void tensordot(OnnxCall& call) {
  const std::int64_t ranks[] = {call.rank("self"), call.rank("other")};
  const auto of_self = call.dims("dims_self", ranks[0]), of_other = call.dims("dims_other", ranks[1]);
  if (of_self.size() != of_other.size() || ranks[0] + ranks[1] > 26)
    call.refuse("it sums over different numbers of dimensions, or has more than 26");
  std::string letters[2], result;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t dim = 0; dim < ranks[i]; ++dim)
      letters[i] += static_cast<char>('a' + (i == 0 ? 0 : ranks[0]) + dim);
  for (std::size_t i = 0; i < of_self.size(); ++i) {
    const auto own = static_cast<std::size_t>(of_self[i]), others = static_cast<std::size_t>(of_other[i]);
    const ProgramSize &one = call.meta("self").sizes[own], &other = call.meta("other").sizes[others];
    if (one.expression != other.expression || (one.expression.empty() && one.number != other.number))
      call.refuse("it sums over dimensions of different sizes");
    letters[1][others] = letters[0][own];
  }
  for (std::size_t i = 0; i < 2; ++i)
    for (const char each : letters[i])
      if (letters[1 - i].find(each) == std::string::npos) result += each;
  call.set_result(call.add("Einsum", {call.tensor("self"), call.tensor("other")},
                           {{"equation", letters[0] + "," + letters[1] + "->" + result}}));
}

void outer_product(OnnxCall& call) {
  call.set_result(
      call.add("Einsum", {call.tensor("self"), call.tensor("vec2")}, {{"equation", std::string("i,j->ij")}}));
}

// Two rows of numbers and a matrix for each output.
void bilinear(OnnxCall& call) {
  const std::string product =
      call.add("Einsum", {call.tensor("input1"), call.tensor("weight"), call.tensor("input2")},
               {{"equation", std::string("...i,kij,...j->...k")}});
  call.set_result(call.has("bias") ? call.add("Add", {product, call.tensor("bias")}) : product);
}

}  // namespace

OnnxMappings onnx_products() {
  return {{"matmul", &matrix_product},    {"mm", &matrix_product},           {"bmm", &matrix_product},
          {"mv", &matrix_product},        {"dot", &matrix_product},          {"linear", &linear},
          {"addmm", &add_matrix_product}, {"baddbmm", &add_batched_product}, {"einsum", &einsum},
          {"tensordot", &tensordot},      {"outer", &outer_product},         {"bilinear", &bilinear}};
}

}  // namespace kindling
