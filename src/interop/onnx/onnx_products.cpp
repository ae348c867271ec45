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
  return {{"matmul", &matrix_product},
          {"mm", &matrix_product},
          {"bmm", &matrix_product},
          {"mv", &matrix_product},
          {"dot", &matrix_product},
          {"linear", &linear},
          {"addmm", &add_matrix_product},
          {"baddbmm", &add_batched_product},
          {"einsum", &einsum},
          {"outer", &outer_product},
          {"bilinear", &bilinear}};
}

}  // namespace kindling
