#include <limits>
#include <string>

#include "interop/onnx/onnx_operators.h"

// Operators that sort.
namespace kindling {
namespace {

struct Sorted {
  std::string values, places;
};

// The smallest or largest `count` of a dimension, in order. Of equal ones, the first comes first, as in
// stable sorting.
Sorted top_of(OnnxCall& call, std::string x, std::int64_t dim, const std::string& count, bool is_descending) {
  const at::ScalarType type = call.type_of("self");
  const bool is_flags = type == at::kBool;  // which onnxruntime does not order
  if (is_flags) x = call.cast(x, at::kBool, at::kInt);
  const auto found =
      call.add_all("TopK", {x, count}, {{"axis", dim}, {"largest", is_descending ? 1 : 0}, {"sorted", 1}}, 2);
  return {is_flags ? call.cast(found[0], at::kInt, at::kBool) : found[0], found[1]};
}

Sorted sorted(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  if (rank == 0) call.refuse("its tensor has no dimension");
  const std::int64_t dim = call.dim("dim", rank);
  return top_of(call, call.tensor("self"), dim, call.vector_of({call.size("self", dim)}),
                call.flag("descending"));
}

void sort(OnnxCall& call) {
  const Sorted found = sorted(call);
  call.set_result(found.values, 0);
  call.set_result(found.places, 1);
}

void argsort(OnnxCall& call) { call.set_result(sorted(call).places); }

// The lower one of an even number; NaN if there is one.
void median(OnnxCall& call) {
  std::string x = call.tensor("self");
  const bool is_of_all = !call.has("dim");
  const at::ScalarType type = call.type_of("self");
  if (is_of_all) x = call.reshaped(x, std::vector<std::int64_t>{-1});
  if (!is_of_all && call.is_result_used(1))
    call.refuse("the index of the median is used, which is another one for equal values");
  const std::int64_t dim = is_of_all ? 0 : call.dim("dim", call.rank("self"));
  const std::string size = call.add("Shape", {x}, {{"start", dim}, {"end", dim + 1}});
  const std::string count = call.add("Div", {call.add("Add", {size, call.int64s({1})}), call.int64s({2})});
  const Sorted found = top_of(call, x, dim, count, /*is_descending=*/false);
  const bool keeps = !is_of_all && call.flag("keepdim");
  const std::string last = keeps ? call.int64s({-1}) : call.scalar(-1, at::kLong);
  std::string result = call.add("Gather", {found.values, last}, {{"axis", dim}});
  if (at::isFloatingType(type)) {
    const std::string flags = call.cast(call.add("IsNaN", {x}), at::kBool, at::kInt);
    const std::string any =
        call.cast(call.add("ReduceMax", {flags, call.int64s({dim})}, {{"keepdims", keeps ? 1 : 0}}), at::kInt,
                  at::kBool);
    result = call.add("Where", {any, call.scalar(std::numeric_limits<double>::quiet_NaN(), type), result});
  }
  call.set_result(result, 0);
}

}  // namespace

OnnxMappings onnx_order() {
  return {{"sort", &sort},     {"sort.stable", &sort}, {"argsort", &argsort}, {"argsort.stable", &argsort},
          {"median", &median}, {"median.dim", &median}};
}

}  // namespace kindling
