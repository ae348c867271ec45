#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "interop/onnx/onnx_operators.h"

// Operators that write values to places given by indices.
namespace kindling {
namespace {

bool has_same_sizes(const ProgramTensor& one, const ProgramTensor& other) {
  return std::ranges::equal(one.sizes, other.sizes, [](const ProgramSize& a, const ProgramSize& b) {
    return a.expression == b.expression && (!a.expression.empty() || a.number == b.number);
  });
}

// The values, cut to the sizes of the indices, as PyTorch reads them.
std::string values_at_indices(OnnxCall& call, const char* source, const std::string& index) {
  const std::string values = call.operand(source, call.result_type());
  if (!call.is_tensor(source)) return call.add("Expand", {values, call.add("Shape", {index})});
  if (has_same_sizes(call.meta(source), call.meta("index"))) return values;
  const std::vector<std::int64_t> zeros(static_cast<std::size_t>(call.rank("index")));
  return call.add("Slice", {values, call.int64s(zeros), call.add("Shape", {index})});
}

OnnxMapping scatter(const char* source, const std::string& reduction) {
  return [=](OnnxCall& call) {
    if (call.rank("self") == 0) call.refuse("its tensor has no dimension");
    const std::string index = call.tensor("index");
    call.set_result(call.add("ScatterElements",
                             {call.tensor("self"), index, values_at_indices(call, source, index)},
                             {{"axis", call.dim("dim", call.rank("self"))}, {"reduction", reduction}}));
  };
}

void scatter_reduce(OnnxCall& call) {
  const std::string kind = call.text("reduce");
  const std::map<std::string, std::string> reductions{
      {"sum", "add"}, {"prod", "mul"}, {"amax", "max"}, {"amin", "min"}};
  const auto reduction = reductions.find(kind);
  if (reduction == reductions.end())
    call.refuse("its reduction is \"" + kind + "\"", "sum, prod, amax or amin");
  if (!call.flag("include_self")) call.refuse("it excludes the tensor's own values (include_self = False)");
  scatter("src", reduction->second)(call);
}

// Counts the values in intervals of equal length. PyTorch takes the range of the values if it is empty.
void histogram(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::int64_t bins = call.integer("bins");
  const std::string x = call.reshaped(call.operand("self", type), std::vector<std::int64_t>{-1});
  std::string low = call.scalar(call.real("min"), type), high = call.scalar(call.real("max"), type);
  if (call.real("min") == call.real("max")) {
    const std::string one = call.scalar(1, type), smallest = call.add("ReduceMin", {x}, {{"keepdims", 0}}),
                      largest = call.add("ReduceMax", {x}, {{"keepdims", 0}}),
                      is_point = call.add("Equal", {smallest, largest});
    low = call.add("Where", {is_point, call.add("Sub", {smallest, one}), smallest});
    high = call.add("Where", {is_point, call.add("Add", {largest, one}), largest});
  }
  const std::string is_inside =
      call.add("And", {call.add("GreaterOrEqual", {x, low}), call.add("LessOrEqual", {x, high})});
  const std::string apart = call.add(
      "Mul", {call.add("Sub", {call.add("Where", {is_inside, x, low}), low}), call.scalar(bins, type)});
  const std::string place =
      call.add("Min", {call.cast(call.add("Div", {apart, call.add("Sub", {high, low})}), type, at::kLong),
                       call.scalar(bins - 1, at::kLong)});
  call.set_result(call.add("ScatterElements",
                           {call.graph().constant(at::zeros({bins}, at::dtype(type))), place,
                            call.cast(is_inside, at::kBool, type)},
                           {{"axis", 0}, {"reduction", std::string("add")}}));
}

// The bags of all indices, from where each bag begins; `count` is for what belongs to none.
std::string bags_of(OnnxCall& call, const std::string& indices, const std::string& count) {
  const std::string offsets = call.operand("offsets", at::kLong), one = call.scalar(1, at::kLong),
                    total = call.add("Shape", {indices});
  const std::string begins =
      call.add("ScatterElements",
               {call.add("Expand", {call.scalar(0, at::kLong), call.add("Add", {total, call.int64s({1})})}),
                offsets, call.add("Expand", {one, call.add("Shape", {offsets})})},
               {{"axis", 0}, {"reduction", std::string("add")}});
  const std::string begun =
      call.add("Slice", {call.add("CumSum", {begins, call.scalar(0, at::kLong)}), call.int64s({0}), total});
  const std::string bags = call.add("Sub", {begun, one});
  if (!call.has("padding_idx")) return bags;
  std::int64_t padding = call.integer("padding_idx");
  if (padding < 0) padding += call.meta("weight").sizes[0].number;
  return call.add("Where", {call.add("Equal", {indices, call.scalar(padding, at::kLong)}), count, bags});
}

// Sums, means or largest values of the rows of bags, in one more row than there are bags.
void embedding_bag(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::int64_t mode = call.integer("mode");  // sum, mean, max
  if (call.rank("indices") != 1 || call.is_result_used(1) || call.is_result_used(2) || call.is_result_used(3))
    call.refuse("its indices are a matrix, or more than its first result is used");
  if (mode == 2 &&
      (call.constant("weight") == nullptr || call.constant("weight")->isnan().any().item<bool>()))
    call.refuse("it takes the largest rows of a computed tensor or of NaN");
  const std::string indices = call.operand("indices", at::kLong), first = call.int64s({0});
  std::string bags = call.add("Shape", {call.tensor("offsets")});
  if (call.flag("include_last_offset")) bags = call.add("Sub", {bags, call.int64s({1})});
  std::string rows = call.add("Gather", {call.tensor("weight"), indices});
  if (call.has("per_sample_weights"))
    rows =
        call.add("Mul", {rows, call.add("Unsqueeze", {call.tensor("per_sample_weights"), call.int64s({1})})});
  const std::string places =
      call.add("Unsqueeze", {bags_of(call, indices, call.add("Squeeze", {bags})), call.int64s({1})});
  const auto collected = [&](const std::string& values, double initial, const char* reduction) {
    const std::string width = call.add("Shape", {values}, {{"start", 1}}), one = call.int64s({1}),
                      sizes = call.add("Concat", {call.add("Add", {bags, one}), width}, {{"axis", 0}});
    const std::string all = call.add("ScatterElements",
                                     {call.add("Expand", {call.scalar(initial, type), sizes}),
                                      call.add("Expand", {places, call.add("Shape", {values})}), values},
                                     {{"axis", 0}, {"reduction", std::string(reduction)}});
    return call.add("Slice", {all, first, bags, first});
  };
  if (mode == 0) return call.set_result(collected(rows, 0, "add"));
  const std::string ones = call.add("Expand", {call.scalar(1, type), call.add("Shape", {places})}),
                    counts = collected(ones, 0, "add"), zero = call.scalar(0, type);
  if (mode == 1)
    return call.set_result(
        call.add("Div", {collected(rows, 0, "add"), call.add("Max", {counts, call.scalar(1, type)})}));
  const std::string largest = collected(rows, -std::numeric_limits<double>::infinity(), "max");
  call.set_result(call.add("Where", {call.add("Equal", {counts, zero}), zero, largest}));
}

// One index for whole slices of a dimension.
OnnxMapping write_slices(const std::string& reduction) {
  return [=](OnnxCall& call) {
    const std::int64_t rank = call.rank("self"), dim = call.dim("dim", rank);
    const at::ScalarType type = call.result_type();
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank), 1);
    if (rank == 0) call.refuse("its tensor has no dimension");
    sizes[static_cast<std::size_t>(dim)] = -1;
    std::string values = call.operand("source", type);
    const std::string index =
        call.add("Expand", {call.reshaped(call.tensor("index"), sizes), call.add("Shape", {values})});
    if (call.has("alpha") && call.real("alpha") != 1)
      values = call.add("Mul", {values, call.operand("alpha", type)});
    call.set_result(call.add("ScatterElements", {call.tensor("self"), index, values},
                             {{"axis", dim}, {"reduction", reduction}}));
  };
}

// x[mask] = number, x[:, mask] = number.
void put_at_mask(OnnxCall& call, const std::string& mask, std::int64_t first_dim, bool accumulates) {
  const at::ScalarType type = call.result_type();
  if (call.rank("values") > 0 || accumulates)
    call.refuse("it writes several values at a mask, or adds them", "one number",
                "use torch.where, or masked_fill for a number");
  const std::int64_t rank = call.rank("self") - first_dim,
                     given = static_cast<std::int64_t>(call.value_meta(mask).sizes.size());
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = given; dim < rank; ++dim) dims.push_back(dim);
  std::string condition = call.typed_value(mask, at::kBool);
  if (!dims.empty()) condition = call.add("Unsqueeze", {condition, call.int64s(dims)});
  call.set_result(selected(call, condition, call.operand("values", type), call.operand("self", type)));
}

// x[rows, columns] = values, x[:, rows, columns] = values or x[rows, :, columns] = values, or += with
// accumulate.
void index_put(OnnxCall& call) {
  const OnnxIndices found = indices_of(call);
  const bool accumulates = call.flag("accumulate");
  const bool has_mask =
      std::ranges::any_of(found.names, [&](const std::string& name) { return is_mask(call, name); });
  if (has_mask && found.names.size() > 1) call.refuse("it has a mask among several indices");
  if (has_mask) return put_at_mask(call, found.names[0], found.dims[0], accumulates);
  const at::ScalarType type = call.result_type();
  const std::int64_t rank = call.rank("self"), count = static_cast<std::int64_t>(found.dims.size());
  const std::vector<std::int64_t> places = found.result_dims();
  const std::string self = with_dims_first(call, call.operand("self", type), rank, found.dims),
                    indices = stacked_indices(call, found.names);
  const std::int64_t before = count + (places.empty() ? 0 : places[0]);
  std::vector<std::string> sizes{call.add("Shape", {indices}, {{"end", -1}}),
                                 call.add("Shape", {self}, {{"start", before}})};
  if (before > count)
    sizes.insert(sizes.begin(), call.add("Shape", {self}, {{"start", count}, {"end", before}}));
  const std::string values =
      call.add("Expand", {call.operand("values", type), call.add("Concat", sizes, {{"axis", 0}})});
  const std::string written =
      call.add("ScatterND", {self, indices, with_dims_first(call, values, rank - count + found.rank, places)},
               {{"reduction", std::string(accumulates ? "add" : "none")}});
  call.set_result(with_dims_back(call, written, rank, found.dims));
}

}  // namespace

OnnxMappings onnx_scatters() {
  return {{"scatter.src", scatter("src", "none")},
          {"scatter.value", scatter("value", "none")},
          {"scatter_add", scatter("src", "add")},
          {"scatter_reduce.two", &scatter_reduce},
          {"histc", &histogram},
          {"embedding_bag.padding_idx", &embedding_bag},
          {"embedding_bag", &embedding_bag},
          {"index_add", write_slices("add")},
          {"index_copy", write_slices("none")},
          {"index_put", &index_put}};
}

}  // namespace kindling
