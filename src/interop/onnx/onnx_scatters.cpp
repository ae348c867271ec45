#include <algorithm>
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

// x[mask] = number.
void put_at_mask(OnnxCall& call, const std::string& mask, bool accumulates) {
  const at::ScalarType type = call.result_type();
  if (call.rank("values") > 0 || accumulates)
    call.refuse("it writes several values at a mask, or adds them", "one number",
                "use torch.where, or masked_fill for a number");
  const std::int64_t rank = call.rank("self"),
                     given = static_cast<std::int64_t>(call.value_meta(mask).sizes.size());
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = given; dim < rank; ++dim) dims.push_back(dim);
  std::string condition = call.typed_value(mask, at::kBool);
  if (!dims.empty()) condition = call.add("Unsqueeze", {condition, call.int64s(dims)});
  call.set_result(call.add("Where", {condition, call.operand("values", type), call.operand("self", type)}));
}

// x[rows, columns] = values, or += with accumulate.
void index_put(OnnxCall& call) {
  const auto* list = std::get_if<ProgramList>(&call.argument("indices").value);
  if (list == nullptr) call.refuse("its indices are not a list");
  std::vector<std::string> names;
  for (const ProgramArgument& item : list->items) {
    const auto* name = std::get_if<TensorName>(&item.value);
    if (name == nullptr) call.refuse("its indices are not for the first dimensions");
    names.push_back(name->name);
  }
  const bool accumulates = call.flag("accumulate");
  const auto is_mask = [&](const std::string& name) {
    const ProgramType type = call.value_meta(name).type;
    return type == ProgramType::boolean || type == ProgramType::uint8;
  };
  if (names.size() == 1 && is_mask(names[0])) return put_at_mask(call, names[0], accumulates);
  if (names.empty() || std::ranges::any_of(names, is_mask))
    call.refuse("it has several masks as indices, or none");
  const at::ScalarType type = call.result_type();
  const std::string self = call.operand("self", type), places = stacked_indices(call, names);
  const auto count = static_cast<std::int64_t>(names.size());
  const std::string sizes = call.add(
      "Concat", {call.add("Shape", {places}, {{"end", -1}}), call.add("Shape", {self}, {{"start", count}})},
      {{"axis", 0}});
  const std::string values = call.add("Expand", {call.operand("values", type), sizes});
  call.set_result(call.add("ScatterND", {self, places, values},
                           {{"reduction", std::string(accumulates ? "add" : "none")}}));
}

}  // namespace

OnnxMappings onnx_scatters() {
  return {{"scatter.src", scatter("src", "none")},
          {"scatter.value", scatter("value", "none")},
          {"scatter_add", scatter("src", "add")},
          {"scatter_reduce.two", &scatter_reduce},
          {"index_add", write_slices("add")},
          {"index_copy", write_slices("none")},
          {"index_put", &index_put}};
}

}  // namespace kindling
