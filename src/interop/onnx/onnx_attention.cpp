#include <cmath>
#include <limits>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

// Returns 0 where a boolean mask is true, else minus infinity.
std::string additive_mask(OnnxCall& call, const std::string& allowed) {
  const at::ScalarType type = call.result_type();
  return call.add(
      "Where", {allowed, call.scalar(0, type), call.scalar(-std::numeric_limits<double>::infinity(), type)});
}

// Each position attends to itself and to those before it.
std::string causal_mask(OnnxCall& call) {
  const std::int64_t rank = call.rank("query");
  const std::string sizes =
      call.vector_of({call.size("query", rank - 2), call.size("key", call.rank("key") - 2)});
  const std::string ones = call.add("Expand", {call.scalar(1, at::kLong), sizes});
  const std::string below = call.add("Trilu", {ones}, {{"upper", 0}});
  return additive_mask(call, call.cast(below, at::kLong, at::kBool));
}

std::string mask_of(OnnxCall& call) {
  if (call.flag("is_causal")) return causal_mask(call);
  if (!call.has("attn_mask")) return "";
  if (call.type_of("attn_mask") == at::kBool) return additive_mask(call, call.tensor("attn_mask"));
  return call.operand("attn_mask", call.result_type());
}

// Several query heads share a head of keys and values: each head is repeated consecutively.
std::string with_query_heads(OnnxCall& call, const char* name) {
  const std::string x = call.tensor(name);
  const std::int64_t rank = call.rank(name);
  if (!call.flag("enable_gqa") || rank < 3) return x;
  const OnnxNumber wanted = call.size("query", rank - 3), heads = call.size(name, rank - 3);
  if (!wanted.constant || !heads.constant) call.refuse("the number of heads is not constant");
  if (wanted.constant == heads.constant) return x;
  std::vector<std::int64_t> repeats(static_cast<std::size_t>(rank) + 1, 1);
  repeats[static_cast<std::size_t>(rank) - 2] = *wanted.constant / *heads.constant;
  const std::string with_group_axis = call.add("Unsqueeze", {x, call.int64s({rank - 2})});
  const std::string repeated = call.add("Tile", {with_group_axis, call.int64s(repeats)});
  std::vector<OnnxNumber> sizes;
  for (std::int64_t dim = 0; dim < rank; ++dim)
    sizes.push_back(dim == rank - 3 ? wanted : call.size(name, dim));
  return call.reshaped(repeated, sizes);
}

// softmax(query · keyᵀ · scale + mask) · value
void attention(OnnxCall& call) {
  if (call.real("dropout_p") > 0)
    call.refuse("attention with dropout draws random numbers", "dropout_p = 0",
                "export the model in evaluation mode, and set dropout_p only in training");
  const at::ScalarType type = call.result_type();
  const std::int64_t rank = call.rank("query"), key_rank = call.rank("key");
  const ProgramSize& width = call.meta("query").sizes.at(static_cast<std::size_t>(rank) - 1);
  if (!width.expression.empty()) call.refuse("the width of the queries is not constant");
  const double scale =
      call.has("scale") ? call.real("scale") : 1 / std::sqrt(static_cast<double>(width.number));
  const std::string query = call.add("Mul", {call.tensor("query"), call.scalar(scale, type)});
  const std::string keys = call.swapped(with_query_heads(call, "key"), key_rank, key_rank - 2, key_rank - 1);
  const std::string mask = mask_of(call);
  std::string scores = call.add("MatMul", {query, keys});
  if (!mask.empty()) scores = call.add("Add", {scores, mask});
  std::string shares = call.add("Softmax", {scores}, {{"axis", -1}});
  // Rows in which everything is masked return zeros.
  if (call.has("attn_mask"))
    shares = call.add("Where", {call.add("IsNaN", {shares}), call.scalar(0, type), shares});
  call.set_result(call.add("MatMul", {shares, with_query_heads(call, "value")}));
}

}  // namespace

OnnxMappings onnx_attention() { return {{"scaled_dot_product_attention", &attention}}; }

}  // namespace kindling
