#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

const char* second_factor(const OnnxCall& call) {
  for (const char* const name : {"mat2", "vec", "tensor"})
    if (call.has(name)) return name;
  return "other";
}

void matrix_product(OnnxCall& call) {
  call.set_result(call.add("MatMul", {call.tensor("self"), call.tensor(second_factor(call))}));
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
std::string equation_of_tensordot(const OnnxCall& call) {
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
  return letters[0] + "," + letters[1] + "->" + result;
}

void tensordot(OnnxCall& call) {
  call.set_result(call.add("Einsum", {call.tensor("self"), call.tensor("other")},
                           {{"equation", equation_of_tensordot(call)}}));
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

// --- of complex tensors ---

OnnxMapping complex_pair(std::function<OnnxProduct(OnnxCall&)> product_of) {
  return [product_of = std::move(product_of)](OnnxCall& call) {
    set_complex_result(call, complex_product(call, factor_of(call, "self"),
                                             factor_of(call, second_factor(call)), product_of(call)));
  };
}

OnnxProduct matrix_products(OnnxCall& call) {
  return [&call](const std::string& a, const std::string& b) { return call.add("MatMul", {a, b}); };
}

OnnxProduct einsum_products(OnnxCall& call, const std::string& equation) {
  return [&call, equation](const std::string& a, const std::string& b) {
    return call.add("Einsum", {a, b}, {{"equation", equation}});
  };
}

OnnxComplex factor_in_list(OnnxCall& call, const std::string& name) {
  OnnxComplex made{call.typed_value(name, call.result_type())};
  if (!call.is_complex_value(name)) return made;
  call.set_part(OnnxPart::imaginary);
  made.imaginary = call.typed_value(name, call.result_type());
  call.set_part(OnnxPart::real);
  return made;
}

// Factor by factor; letters of neither the result nor a later factor are summed.
void complex_einsum(OnnxCall& call) {
  std::string equation = call.text("equation");
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos)
    call.refuse("its equation names no result, or has \"...\"", "letters for all dimensions, and \"->\"");
  const std::string result = equation.substr(arrow + 2);
  std::vector<std::string> letters;
  std::istringstream factors(equation.substr(0, arrow));
  for (std::string each; std::getline(factors, each, ',');) letters.push_back(each);
  const std::vector<std::string> names = call.names("tensors");
  if (names.size() < 2 || names.size() != letters.size()) call.refuse("it has a single factor");
  OnnxComplex made = factor_in_list(call, names[0]);
  std::string made_letters = letters[0];
  for (std::size_t i = 1; i < names.size(); ++i) {
    std::string needed = result, kept;
    for (std::size_t later = i + 1; later < names.size(); ++later) needed += letters[later];
    for (const char each : made_letters + letters[i])
      if (needed.find(each) != std::string::npos && kept.find(each) == std::string::npos) kept += each;
    if (i + 1 == names.size()) kept = result;
    made = complex_product(call, made, factor_in_list(call, names[i]),
                           einsum_products(call, made_letters + "," + letters[i] + "->" + kept));
    made_letters = kept;
  }
  set_complex_result(call, made);
}

}  // namespace

OnnxMappings onnx_complex_products() {
  OnnxMappings mappings{{"einsum", &complex_einsum}, {"tensordot", complex_pair([](OnnxCall& call) {
                                                        return einsum_products(call,
                                                                               equation_of_tensordot(call));
                                                      })}};
  for (const char* const name : {"matmul", "mm", "bmm", "mv", "dot"})
    mappings.emplace_back(name, complex_pair(&matrix_products));
  return mappings;
}

OnnxMappings onnx_products() {
  return {{"matmul", &matrix_product},    {"mm", &matrix_product},           {"bmm", &matrix_product},
          {"mv", &matrix_product},        {"dot", &matrix_product},          {"linear", &linear},
          {"addmm", &add_matrix_product}, {"baddbmm", &add_batched_product}, {"einsum", &einsum},
          {"tensordot", &tensordot},      {"outer", &outer_product},         {"bilinear", &bilinear}};
}

}  // namespace kindling
