#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

// Without dimensions: over all.
std::vector<std::int64_t> reduced_dims(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  std::vector<std::int64_t> dims = call.has("dim") ? call.dims("dim", rank) : std::vector<std::int64_t>();
  if (dims.empty()) {
    dims.resize(static_cast<std::size_t>(rank));
    std::iota(dims.begin(), dims.end(), std::int64_t{0});
  }
  return dims;
}

bool keeps_dims(OnnxCall& call) { return call.has("keepdim") && call.flag("keepdim"); }

std::string reduced_over(OnnxCall& call, const char* type, const std::string& x,
                         const std::vector<std::int64_t>& dims, bool keep) {
  if (call.rank("self") == 0) return call.add(type, {x}, {{"keepdims", 0}});
  return call.add(type, {x, call.int64s(dims)}, {{"keepdims", keep ? 1 : 0}});
}

std::string reduced(OnnxCall& call, const char* type, const std::string& x, bool keep) {
  return reduced_over(call, type, x, reduced_dims(call), keep);
}

OnnxMapping reduction(const char* type) {
  return [type](OnnxCall& call) {
    call.set_result(reduced(call, type, call.operand("self", call.result_type()), keeps_dims(call)));
  };
}

// Of booleans; numbers other than 0 are true.
OnnxMapping truth_reduction(const char* type) {
  return [type](OnnxCall& call) {
    const std::string truth = call.operand("self", at::kBool);
    const std::string found = reduced(call, type, call.cast(truth, at::kBool, at::kInt), keeps_dims(call));
    call.set_result(call.cast(found, at::kInt, at::kBool));
  };
}

OnnxMapping extreme_with_index(const char* value_operator, const char* index_operator) {
  return [=](OnnxCall& call) {
    const std::string x = call.tensor("self");
    const std::int64_t dim = call.dim("dim", call.rank("self"));
    const int keep = keeps_dims(call) ? 1 : 0;
    call.set_result(call.add(value_operator, {x, call.int64s({dim})}, {{"keepdims", keep}}), 0);
    if (call.is_result_used(1))
      call.set_result(call.add(index_operator, {x}, {{"axis", dim}, {"keepdims", keep}}), 1);
  };
}

OnnxMapping index_of_extreme(const char* type) {
  return [type](OnnxCall& call) {
    if (call.has("dim"))
      return call.set_result(
          call.add(type, {call.tensor("self")},
                   {{"axis", call.dim("dim", call.rank("self"))}, {"keepdims", keeps_dims(call) ? 1 : 0}}));
    if (keeps_dims(call)) call.refuse("it keeps dimensions (keepdim) without naming any");
    const std::string all = call.reshaped(call.tensor("self"), std::vector<std::int64_t>{-1});
    call.set_result(call.add(type, {all}, {{"axis", 0}, {"keepdims", 0}}));
  };
}

// The number of values that are reduced to one.
std::string count_of(OnnxCall& call, at::ScalarType type) {
  std::int64_t count = 1;
  bool is_constant = true;
  for (const std::int64_t dim : reduced_dims(call)) {
    const ProgramSize& size = call.meta("self").sizes[static_cast<std::size_t>(dim)];
    is_constant = is_constant && size.expression.empty();
    count *= size.number;
  }
  if (is_constant) return call.scalar(count, type);
  const std::string sizes =
      call.add("Gather", {call.add("Shape", {call.tensor("self")}), call.int64s(reduced_dims(call))});
  return call.cast(call.add("ReduceProd", {sizes}, {{"keepdims", 0}}), at::kLong, type);
}

double correction_of(OnnxCall& call) {
  if (call.has("unbiased")) return call.flag("unbiased") ? 1 : 0;
  return call.has("correction") ? call.real("correction") : 1;
}

OnnxMapping spread(bool is_root, bool has_mean) {
  return [=](OnnxCall& call) {
    const at::ScalarType type = call.result_type();
    const std::string x = call.operand("self", type);
    const std::string difference = call.add("Sub", {x, reduced(call, "ReduceMean", x, true)});
    const std::string sum =
        reduced(call, "ReduceSum", call.add("Mul", {difference, difference}), keeps_dims(call));
    const std::string count = call.add("Sub", {count_of(call, type), call.scalar(correction_of(call), type)});
    const std::string variance = call.add("Div", {sum, count});
    call.set_result(is_root ? call.add("Sqrt", {variance}) : variance, 0);
    if (has_mean) call.set_result(reduced(call, "ReduceMean", x, keeps_dims(call)), 1);
  };
}

// The largest or smallest one; NaN if there is one, which onnxruntime may ignore.
std::string extreme_over(OnnxCall& call, bool is_largest, const std::string& x,
                         const std::vector<std::int64_t>& dims, bool keep) {
  const at::ScalarType type = call.result_type();
  const std::string found = reduced_over(call, is_largest ? "ReduceMax" : "ReduceMin", x, dims, keep);
  const std::string flags = call.cast(call.add("IsNaN", {x}), at::kBool, at::kInt),
                    any = call.cast(reduced_over(call, "ReduceMax", flags, dims, keep), at::kInt, at::kBool);
  return call.add("Where", {any, call.scalar(std::numeric_limits<double>::quiet_NaN(), type), found});
}

void vector_norm_of_order(OnnxCall& call, double order) {
  const at::ScalarType type = call.result_type();
  const std::string x = call.operand("self", type);
  const bool keep = keeps_dims(call);
  if (order == 2) return call.set_result(reduced(call, "ReduceL2", x, keep));
  if (order == 1) return call.set_result(reduced(call, "ReduceL1", x, keep));
  const std::string size = call.add("Abs", {x});
  if (std::isinf(order))
    return call.set_result(extreme_over(call, order > 0, size, reduced_dims(call), keep));
  if (order == 0) {
    const std::string is_other = call.add("Not", {call.add("Equal", {x, call.scalar(0, type)})});
    return call.set_result(reduced(call, "ReduceSum", call.cast(is_other, at::kBool, type), keep));
  }
  const std::string sum = reduced(call, "ReduceSum", call.add("Pow", {size, call.scalar(order, type)}), keep);
  call.set_result(call.add("Pow", {sum, call.scalar(1 / order, type)}));
}

void vector_norm(OnnxCall& call) { vector_norm_of_order(call, call.real("ord")); }

// The largest or smallest sum of a row or a column.
void matrix_norm_of_order(OnnxCall& call, double order) {
  if (!std::isinf(order) && std::abs(order) != 1)
    call.refuse("it needs singular values, which ONNX cannot compute",
                "the order 1, -1, inf, -inf or \"fro\"");
  std::vector<std::int64_t> dims = reduced_dims(call);
  if (std::isinf(order)) std::swap(dims[0], dims[1]);
  const std::string x = call.operand("self", call.result_type()),
                    sums = reduced_over(call, "ReduceL1", x, {dims[0]}, true),
                    found = extreme_over(call, order > 0, sums, {dims[1]}, true);
  call.set_result(keeps_dims(call) ? found : call.add("Squeeze", {found, call.int64s(dims)}));
}

// Without an order, of all elements; else of rows of numbers or of matrices.
void norm_of_rows_or_matrices(OnnxCall& call) {
  if (!call.has("ord")) return vector_norm_of_order(call, 2);
  if (reduced_dims(call).size() == 2) return matrix_norm_of_order(call, call.real("ord"));
  vector_norm_of_order(call, call.real("ord"));
}

void norm_by_name(OnnxCall& call) {
  if (call.text("ord") != "fro") call.refuse("it needs singular values, which ONNX cannot compute");
  vector_norm_of_order(call, 2);
}

OnnxMapping extreme(bool is_largest) {
  return [=](OnnxCall& call) {
    const std::string x = call.operand("self", call.result_type());
    const bool keep = keeps_dims(call);
    call.set_result(at::isFloatingType(call.result_type())
                        ? extreme_over(call, is_largest, x, reduced_dims(call), keep)
                        : reduced(call, is_largest ? "ReduceMax" : "ReduceMin", x, keep));
  };
}

// The product of two normalized vectors; lengths are at least eps.
void cosine_similarity(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string dim = call.int64s({call.dim("dim", call.rank("x1"))});
  const auto direction = [&](const char* name) {
    const std::string x = call.operand(name, type);
    const std::string length = call.add("ReduceL2", {x, dim});
    return call.add("Div", {x, call.add("Max", {length, call.scalar(call.real("eps"), type)})});
  };
  const std::string product = call.add("Mul", {direction("x1"), direction("x2")});
  call.set_result(call.add("ReduceSum", {product, dim}, {{"keepdims", 0}}));
}

}  // namespace

OnnxMappings onnx_reductions() {
  return {{"mean", reduction("ReduceMean")},
          {"mean.dim", reduction("ReduceMean")},
          {"sum", reduction("ReduceSum")},
          {"sum.dim_IntList", reduction("ReduceSum")},
          {"prod", reduction("ReduceProd")},
          {"prod.dim_int", reduction("ReduceProd")},
          {"amax", extreme(true)},
          {"amin", extreme(false)},
          {"max", extreme(true)},
          {"min", extreme(false)},
          {"logsumexp", reduction("ReduceLogSumExp")},
          {"any", truth_reduction("ReduceMax")},
          {"any.dim", truth_reduction("ReduceMax")},
          {"any.dims", truth_reduction("ReduceMax")},
          {"all", truth_reduction("ReduceMin")},
          {"all.dim", truth_reduction("ReduceMin")},
          {"all.dims", truth_reduction("ReduceMin")},
          {"max.dim", extreme_with_index("ReduceMax", "ArgMax")},
          {"min.dim", extreme_with_index("ReduceMin", "ArgMin")},
          {"argmax", index_of_extreme("ArgMax")},
          {"argmin", index_of_extreme("ArgMin")},
          {"var", spread(false, false)},
          {"var.dim", spread(false, false)},
          {"var.correction", spread(false, false)},
          {"std", spread(true, false)},
          {"std.dim", spread(true, false)},
          {"std.correction", spread(true, false)},
          {"var_mean.correction", spread(false, true)},
          {"var_mean.dim", spread(false, true)},
          {"std_mean.correction", spread(true, true)},
          {"linalg_vector_norm", &vector_norm},
          {"linalg_norm", &norm_of_rows_or_matrices},
          {"linalg_norm.ord_str", &norm_by_name},
          {"linalg_matrix_norm", &norm_of_rows_or_matrices},
          {"linalg_matrix_norm.str_ord", &norm_by_name},
          {"cosine_similarity", &cosine_similarity}};
}

}  // namespace kindling
