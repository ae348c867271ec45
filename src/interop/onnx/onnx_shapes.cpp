#include <algorithm>
#include <numeric>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

void unchanged(OnnxCall& call) { call.set_result_to_argument("self"); }

// In evaluation mode, all kinds of dropout return their input.
void dropout(OnnxCall& call) {
  if (call.flag("train") && call.real("p") > 0)
    call.refuse("dropout in training mode draws random numbers", "a program in evaluation mode",
                "export the model in evaluation mode: model.eval() in Python");
  call.set_result_to_argument(call.has("input") ? "input" : "self");  // in-place operators have a self
}

// The requested sizes; -1 is inferred.
OnnxMapping reshape_by(const char* sizes) {
  return
      [sizes](OnnxCall& call) { call.set_result(call.reshaped(call.tensor("self"), call.numbers(sizes))); };
}

void reshape_as(OnnxCall& call) {
  call.set_result(call.add("Reshape", {call.tensor("self"), call.add("Shape", {call.tensor("other")})},
                           {{"allowzero", 1}}));
}

std::vector<OnnxNumber> sizes_between(OnnxCall& call, std::int64_t begin, std::int64_t end) {
  std::vector<OnnxNumber> sizes;
  for (std::int64_t dim = begin; dim < end; ++dim) sizes.push_back(call.size("self", dim));
  return sizes;
}

void flatten(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  if (rank == 0) return call.set_result(call.reshaped(call.tensor("self"), std::vector<std::int64_t>{1}));
  const std::int64_t begin = call.dim("start_dim", rank), end = call.dim("end_dim", rank);
  if (begin == 1 && end == rank - 1)
    return call.set_result(call.add("Flatten", {call.tensor("self")}, {{"axis", 1}}));
  std::vector<OnnxNumber> sizes = sizes_between(call, 0, begin);
  sizes.emplace_back(-1);
  for (OnnxNumber& size : sizes_between(call, end + 1, rank)) sizes.push_back(std::move(size));
  call.set_result(call.reshaped(call.tensor("self"), sizes));
}

void unflatten(OnnxCall& call) {
  const std::int64_t rank = call.rank("self"), dim = call.dim("dim", rank);
  std::vector<OnnxNumber> sizes = sizes_between(call, 0, dim);
  for (OnnxNumber& size : call.numbers("sizes")) sizes.push_back(std::move(size));
  for (OnnxNumber& size : sizes_between(call, dim + 1, rank)) sizes.push_back(std::move(size));
  call.set_result(call.reshaped(call.tensor("self"), sizes));
}

void permute(OnnxCall& call) {
  call.set_result(call.permuted(call.tensor("self"), call.dims("dims", call.rank("self"))));
}

OnnxMapping swap(const char* first, const char* second) {
  return [=](OnnxCall& call) {
    const std::int64_t rank = call.rank("self");
    if (rank == 0) return call.set_result_to_argument("self");
    call.set_result(call.swapped(call.tensor("self"), rank, call.dim(first, rank), call.dim(second, rank)));
  };
}

void transpose_matrix(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  if (rank < 2) return call.set_result_to_argument("self");
  call.set_result(call.swapped(call.tensor("self"), rank, rank - 2, rank - 1));
}

void reverse_dimensions(OnnxCall& call) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(call.rank("self")));
  std::iota(order.rbegin(), order.rend(), std::int64_t{0});
  call.set_result(call.permuted(call.tensor("self"), order));
}

void move_dimensions(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  const auto from = call.dims("source", rank), to = call.dims("destination", rank);
  if (from.size() != to.size()) call.refuse("it has different numbers of source and destination dimensions");
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank), -1), rest;
  for (std::int64_t dim = 0; dim < rank; ++dim)
    if (std::ranges::find(from, dim) == from.end()) rest.push_back(dim);
  for (std::size_t i = 0; i < from.size(); ++i) order[static_cast<std::size_t>(to[i])] = from[i];
  auto next = rest.begin();
  for (std::int64_t& dim : order)
    if (dim < 0) dim = *next++;
  call.set_result(call.permuted(call.tensor("self"), order));
}

// Dimensions other than 1 stay. A size that is not constant was not 1 in the example either.
void squeeze(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  std::vector<std::int64_t> asked, dims;
  if (call.has("dim"))
    asked = call.dims("dim", rank);
  else
    for (std::int64_t dim = 0; dim < rank; ++dim) asked.push_back(dim);
  for (const std::int64_t dim : asked) {
    if (rank == 0) break;
    const ProgramSize& size = call.meta("self").sizes[static_cast<std::size_t>(dim)];
    if (size.expression.empty() && size.number == 1) dims.push_back(dim);
  }
  if (dims.empty()) return call.set_result_to_argument("self");
  call.set_result(call.add("Squeeze", {call.tensor("self"), call.int64s(dims)}));
}

void unsqueeze(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self") + 1);
  call.set_result(call.add("Unsqueeze", {call.tensor("self"), call.int64s({dim})}));
}

// In both, -1 keeps the current size, for which ONNX's Expand takes 1.
void expand(OnnxCall& call) {
  std::vector<OnnxNumber> sizes = call.numbers("size");
  for (OnnxNumber& size : sizes)
    if (size.constant == -1) size.constant = 1;
  call.set_result(call.add("Expand", {call.tensor("self"), call.vector_of(sizes)}));
}

void expand_as(OnnxCall& call) {
  call.set_result(call.add("Expand", {call.tensor("self"), call.add("Shape", {call.tensor("other")})}));
}

// New dimensions come first; `tile` also accepts fewer numbers than dimensions.
OnnxMapping repeat_by(const char* name) {
  return [name](OnnxCall& call) {
    std::vector<OnnxNumber> repeats = call.numbers(name);
    std::string x = call.tensor("self");
    const auto rank = static_cast<std::size_t>(call.rank("self"));
    while (repeats.size() < rank) repeats.emplace(repeats.begin(), 1);
    if (repeats.size() > rank) {
      std::vector<std::int64_t> front(repeats.size() - rank);
      std::iota(front.begin(), front.end(), std::int64_t{0});
      x = call.add("Unsqueeze", {x, call.int64s(front)});
    }
    if (repeats.empty()) return call.set_result(call.add("Identity", {x}));
    call.set_result(call.add("Tile", {x, call.vector_of(repeats)}));
  };
}

// Pairs for the last dimensions, the last one first; ONNX lists all beginnings, then all ends.
void pad_with(OnnxCall& call, const std::string& mode, const std::string& value) {
  const auto rank = static_cast<std::size_t>(call.rank("self"));
  const std::vector<OnnxNumber> pairs = call.numbers("pad");
  if (pairs.size() % 2 != 0 || pairs.size() > 2 * rank)
    call.refuse("its padding sizes are not pairs, or more than the dimensions");
  std::vector<OnnxNumber> pads(2 * rank, OnnxNumber(0));
  for (std::size_t i = 0; i < pairs.size() / 2; ++i) {
    pads[rank - 1 - i] = pairs[2 * i];
    pads[2 * rank - 1 - i] = pairs[2 * i + 1];
  }
  call.set_result(call.add("Pad", {call.tensor("self"), call.vector_of(pads), value}, {{"mode", mode}}));
}

void pad(OnnxCall& call) {
  const std::string mode = call.text("mode");
  if (mode == "constant")
    return pad_with(call, mode, call.scalar(call.has("value") ? call.real("value") : 0, call.result_type()));
  pad_with(call, mode == "replicate" ? "edge" : mode == "circular" ? "wrap" : mode, "");
}

void pad_constant(OnnxCall& call) { pad_with(call, "constant", call.operand("value", call.result_type())); }

void pixel_shuffle(OnnxCall& call) {
  call.set_result(call.add("DepthToSpace", {call.tensor("self")},
                           {{"blocksize", call.integer("upscale_factor")}, {"mode", std::string("CRD")}}));
}

}  // namespace

OnnxMappings onnx_shapes() {
  return {{"view", reshape_by("size")},
          {"reshape", reshape_by("shape")},
          {"_unsafe_view", reshape_by("size")},
          {"view_as", &reshape_as},
          {"reshape_as", &reshape_as},
          {"flatten.using_ints", &flatten},
          {"unflatten.int", &unflatten},
          {"permute", &permute},
          {"transpose.int", swap("dim0", "dim1")},
          {"swapdims", swap("dim0", "dim1")},
          {"swapaxes", swap("axis0", "axis1")},
          {"t", &transpose_matrix},
          {"mT", &transpose_matrix},
          {"matrix_H", &transpose_matrix},
          {"numpy_T", &reverse_dimensions},
          {"movedim.int", &move_dimensions},
          {"movedim.intlist", &move_dimensions},
          {"moveaxis.int", &move_dimensions},
          {"squeeze", &squeeze},
          {"squeeze.dim", &squeeze},
          {"squeeze.dims", &squeeze},
          {"unsqueeze", &unsqueeze},
          {"expand", &expand},
          {"broadcast_to", &expand},
          {"expand_as", &expand_as},
          {"repeat", repeat_by("repeats")},
          {"tile", repeat_by("dims")},
          {"pad", &pad},
          {"constant_pad_nd", &pad_constant},
          {"pixel_shuffle", &pixel_shuffle},
          {"contiguous", &unchanged},
          {"clone", &unchanged},
          {"detach", &unchanged},
          {"alias", &unchanged},
          {"lift_fresh", &unchanged},
          {"lift_fresh_copy", &unchanged},
          {"dropout", &dropout},
          {"feature_dropout", &dropout},
          {"alpha_dropout", &dropout},
          {"feature_alpha_dropout", &dropout}};
}

}  // namespace kindling
