#include <algorithm>
#include <limits>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

void embedding(OnnxCall& call) {
  call.set_result(call.add("Gather", {call.tensor("weight"), call.tensor("indices")}));
}

void index_select(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  std::string index = call.tensor("index");
  if (call.rank("index") == 0) index = call.reshaped(index, std::vector<std::int64_t>{1});
  call.set_result(call.add("Gather", {call.tensor("self"), index}, {{"axis", call.dim("dim", rank)}}));
}

// ONNX's GatherElements also accepts smaller indices, as PyTorch's gather does.
void gather(OnnxCall& call) {
  call.set_result(call.add("GatherElements", {call.tensor("self"), call.tensor("index")},
                           {{"axis", call.dim("dim", call.rank("self"))}}));
}

// x[:, index], or several indices: x[rows, columns], x[:, rows, columns], x[rows, :, columns].
void index(OnnxCall& call) {
  const OnnxIndices found = indices_of(call);
  for (const std::string& name : found.names)
    if (is_mask(call, name))
      call.refuse("it indexes with a mask, so its size depends on values", "",
                  "use torch.where or masked_fill, which keep the size");
  if (found.names.size() == 1)
    return call.set_result(call.add("Gather",
                                    {call.tensor("self"), call.typed_value(found.names[0], at::kLong)},
                                    {{"axis", found.dims[0]}}));
  const std::int64_t rank = call.rank("self"),
                     of_result = rank - static_cast<std::int64_t>(found.dims.size()) + found.rank;
  const std::string first = with_dims_first(call, call.tensor("self"), rank, found.dims),
                    rows = call.add("GatherND", {first, stacked_indices(call, found.names)});
  call.set_result(with_dims_back(call, rows, of_result, found.result_dims()));
}

void one_hot(OnnxCall& call) {
  if (call.integer("num_classes") < 0) call.refuse("it has no num_classes, so its size depends on values");
  const std::string values = call.int64s({0, 1});
  call.set_result(
      call.add("OneHot", {call.tensor("self"), call.int64s({call.integer("num_classes")}), values}));
}

void cumulative_sum(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string dim = call.scalar(call.dim("dim", call.rank("self")), at::kLong);
  call.set_result(call.add("CumSum", {call.operand("self", type), dim}));
}

// ONNX's opset 20 has no CumProd. PyTorch multiplies floats one after the other in double precision.
void cumulative_product(OnnxCall& call) {
  constexpr std::int64_t kMost = 1024;
  const at::ScalarType type = call.result_type(), in = at::isFloatingType(type) ? at::kDouble : type;
  const std::int64_t rank = call.rank("self");
  if (rank == 0) return call.set_result(call.operand("self", type));
  const std::int64_t dim = call.dim("dim", rank);
  const ProgramSize& size = call.meta("self").sizes[static_cast<std::size_t>(dim)];
  if (!size.expression.empty() || size.number > kMost)
    call.refuse("it multiplies along a dimension whose size is not constant, or is above " +
                std::to_string(kMost));
  if (size.number < 2) return call.set_result(call.operand("self", type));
  std::vector<std::string> parts =
      call.add_all("Split", {call.operand("self", in)}, {{"axis", dim}, {"num_outputs", size.number}},
                   static_cast<std::size_t>(size.number));
  for (std::size_t i = 1; i < parts.size(); ++i) parts[i] = call.add("Mul", {parts[i - 1], parts[i]});
  call.set_result(call.cast(call.add("Concat", parts, {{"axis", dim}}), in, type));
}

void top_k(OnnxCall& call) {
  const auto found = call.add_all("TopK", {call.tensor("self"), call.vector_of({call.number("k")})},
                                  {{"axis", call.dim("dim", call.rank("self"))},
                                   {"largest", call.flag("largest") ? 1 : 0},
                                   {"sorted", call.flag("sorted") ? 1 : 0}},
                                  2);
  call.set_result(found[0], 0);
  call.set_result(found[1], 1);
}

// Above and below a diagonal.
OnnxMapping triangle(bool is_upper) {
  return [is_upper](OnnxCall& call) {
    const OnnxNumber diagonal = call.number("diagonal");
    const std::string at = diagonal.constant ? call.scalar(*diagonal.constant, at::kLong)
                                             : call.add("Squeeze", {diagonal.value});
    // onnxruntime supports it only for numbers.
    const bool is_flags = call.result_type() == at::kBool;
    const std::string x = call.operand("self", is_flags ? at::kLong : call.result_type());
    const std::string cut = call.add("Trilu", {x, at}, {{"upper", is_upper ? 1 : 0}});
    call.set_result(is_flags ? call.cast(cut, at::kLong, at::kBool) : cut);
  };
}

// Returns `dims` and then the other dimensions.
std::vector<std::int64_t> dims_in_order(std::int64_t rank, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> order = dims;
  for (std::int64_t dim = 0; dim < rank; ++dim)
    if (std::ranges::find(dims, dim) == dims.end()) order.push_back(dim);
  return order;
}

}  // namespace

std::string stacked_indices(OnnxCall& call, const std::vector<std::string>& names) {
  std::string zeros;
  for (const std::string& name : names) {
    const std::string none = call.add("Mul", {call.typed_value(name, at::kLong), call.scalar(0, at::kLong)});
    zeros = zeros.empty() ? none : call.add("Add", {zeros, none});
  }
  std::vector<std::string> columns;
  const std::string last = call.int64s({-1});
  for (const std::string& name : names)
    columns.push_back(
        call.add("Unsqueeze", {call.add("Add", {call.typed_value(name, at::kLong), zeros}), last}));
  return call.add("Concat", columns, {{"axis", -1}});
}

OnnxIndices indices_of(const OnnxCall& call) {
  const auto* list = std::get_if<ProgramList>(&call.argument("indices").value);
  if (list == nullptr) call.refuse("its indices are not a list");
  OnnxIndices found;
  for (std::size_t i = 0; i < list->items.size(); ++i)
    if (const auto* name = std::get_if<TensorName>(&list->items[i].value)) {
      found.names.push_back(name->name);
      found.dims.push_back(static_cast<std::int64_t>(i));
      found.rank = std::max(found.rank, static_cast<std::int64_t>(call.value_meta(name->name).sizes.size()));
    }
  if (found.names.empty()) call.refuse("it has no indices");
  return found;
}

std::vector<std::int64_t> OnnxIndices::result_dims() const {
  const bool are_adjacent = dims.back() - dims[0] + 1 == static_cast<std::int64_t>(dims.size());
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < rank; ++i) places.push_back(i + (are_adjacent ? dims[0] : 0));
  return places;
}

bool is_mask(const OnnxCall& call, const std::string& name) {
  const ProgramType type = call.value_meta(name).type;
  return type == ProgramType::boolean || type == ProgramType::uint8;
}

std::string with_dims_first(OnnxCall& call, const std::string& value, std::int64_t rank,
                            const std::vector<std::int64_t>& dims) {
  const std::vector<std::int64_t> order = dims_in_order(rank, dims);
  return std::ranges::is_sorted(order) ? value : call.permuted(value, order);
}

std::string with_dims_back(OnnxCall& call, const std::string& value, std::int64_t rank,
                           const std::vector<std::int64_t>& dims) {
  const std::vector<std::int64_t> order = dims_in_order(rank, dims);
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return std::ranges::is_sorted(back) ? value : call.permuted(value, back);
}

OnnxMappings onnx_indexing() {
  return {{"embedding", &embedding},
          {"index_select", &index_select},
          {"gather", &gather},
          {"index.Tensor", &index},
          {"one_hot", &one_hot},
          {"cumsum", &cumulative_sum},
          {"cumprod", &cumulative_product},
          {"topk", &top_k},
          {"triu", triangle(true)},
          {"tril", triangle(false)}};
}

}  // namespace kindling
