#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

void concatenate(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const auto rank = static_cast<std::int64_t>(call.result().sizes.size());
  std::vector<std::string> parts;
  for (const std::string& name : call.names("tensors")) {
    const ProgramTensor& meta = call.value_meta(name);
    if (meta.sizes.size() == 1 && meta.sizes[0].expression.empty() && meta.sizes[0].number == 0)
      continue;  // PyTorch skips an empty one-dimensional tensor among tensors of any rank
    parts.push_back(call.typed_value(name, type));
  }
  call.set_result(call.add("Concat", parts, {{"axis", call.dim("dim", rank)}}));
}

void stack(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", static_cast<std::int64_t>(call.result().sizes.size()));
  const std::string dims = call.int64s({dim});
  std::vector<std::string> parts;
  for (const std::string& name : call.names("tensors"))
    parts.push_back(call.add("Unsqueeze", {call.typed_value(name, call.result_type()), dims}));
  call.set_result(call.add("Concat", parts, {{"axis", dim}}));
}

// Pieces of a size that is not constant. A size for which PyTorch makes another number of pieces is outside
// of the exported range: their lengths then do not add up to it, and the ONNX operator fails.
void split_evenly(OnnxCall& call, std::int64_t dim, std::size_t count, const std::string& length) {
  const std::string whole = call.vector_of({call.size("self", dim)}),
                    before = call.add("Mul", {length, call.int64s({static_cast<std::int64_t>(count) - 1})}),
                    rest = call.add("Sub", {whole, before});
  std::vector<std::string> lengths(count, length);
  lengths.back() = call.add("Min", {rest, length});
  if (count > 1)
    lengths.back() =
        call.add("Where", {call.add("Greater", {rest, call.int64s({0})}), lengths.back(), call.int64s({-1})});
  const std::string all = call.add("Concat", lengths, {{"axis", 0}});
  call.set_list_result(call.add_all("Split", {call.tensor("self"), all}, {{"axis", dim}}, count));
}

// The first pieces are longer by 1 if the size is not a multiple of `count`.
void split_into_sections(OnnxCall& call, std::int64_t dim, std::size_t count) {
  const std::string whole = call.vector_of({call.size("self", dim)}),
                    sections = call.int64s({static_cast<std::int64_t>(count)}),
                    length = call.add("Div", {whole, sections}), longer = call.add("Mod", {whole, sections});
  std::vector<std::string> bounds, pieces;
  for (std::int64_t i = 0; i <= static_cast<std::int64_t>(count); ++i)
    bounds.push_back(call.add(
        "Add", {call.add("Mul", {length, call.int64s({i})}), call.add("Min", {longer, call.int64s({i})})}));
  for (std::size_t i = 0; i < count; ++i)
    pieces.push_back(call.add("Slice", {call.tensor("self"), bounds[i], bounds[i + 1], call.int64s({dim})}));
  call.set_list_result(pieces);
}

void split_dynamic(OnnxCall& call, std::int64_t dim, std::size_t count) {
  if (call.has("sections")) return split_into_sections(call, dim, count);
  if (call.has("split_size"))
    return split_evenly(call, dim, count, call.vector_of({call.number("split_size")}));
  const std::int64_t chunks = call.integer("chunks");
  const std::string whole = call.vector_of({call.size("self", dim)}),
                    rounded = call.add("Add", {whole, call.int64s({chunks - 1})});
  split_evenly(call, dim, count, call.add("Div", {rounded, call.int64s({chunks})}));
}

// Splits into pieces of the lengths in the program; the last piece takes the rest of a size that is not
// constant.
void split(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  std::vector<OnnxNumber> lengths;
  for (const std::string& piece : call.list_results()) {
    const ProgramSize& size = call.value_meta(piece).sizes.at(static_cast<std::size_t>(dim));
    if (!size.expression.empty()) break;
    lengths.emplace_back(size.number);
  }
  const std::size_t count = call.num_list_results();
  if (lengths.size() != count) {
    if (!call.has("split_sizes") && !(call.has("split_size") && call.is_list("split_size")))
      return split_dynamic(call, dim, count);
    lengths = call.numbers(call.has("split_sizes") ? "split_sizes" : "split_size");
  }
  call.set_list_result(
      call.add_all("Split", {call.tensor("self"), call.vector_of(lengths)}, {{"axis", dim}}, count));
}

// Before, between and after these indices.
void split_at(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  std::vector<std::int64_t> bounds = call.integers("indices");
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(std::numeric_limits<std::int64_t>::max());
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i)
    pieces.push_back(call.add("Slice", {call.tensor("self"), call.int64s({bounds[i]}),
                                        call.int64s({bounds[i + 1]}), call.int64s({dim})}));
  call.set_list_result(pieces);
}

// Stacks tensors after they have got at least `rank` dimensions: the new ones come first, or last for
// columns.
OnnxMapping stack_along(std::int64_t rank, bool makes_columns) {
  return [=](OnnxCall& call) {
    std::vector<std::string> parts;
    std::int64_t dim = makes_columns ? 1 : 0;
    for (const std::string& name : call.names("tensors")) {
      const auto own = static_cast<std::int64_t>(call.value_meta(name).sizes.size());
      if (rank == 1 && own > 1) dim = 1;
      std::string part = call.typed_value(name, call.result_type());
      std::vector<std::int64_t> added;
      for (std::int64_t i = own; i < rank; ++i) added.push_back(makes_columns ? i : i - own);
      if (!added.empty()) part = call.add("Unsqueeze", {part, call.int64s(added)});
      parts.push_back(std::move(part));
    }
    call.set_result(call.add("Concat", parts, {{"axis", dim}}));
  };
}

void unbind(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const std::size_t count = call.num_list_results();
  const auto pieces = call.add_all("Split", {call.tensor("self")},
                                   {{"axis", dim}, {"num_outputs", static_cast<std::int64_t>(count)}}, count);
  std::vector<std::string> given;
  const std::string dims = call.int64s({dim});
  for (const std::string& piece : pieces) given.push_back(call.add("Squeeze", {piece, dims}));
  call.set_list_result(given);
}

void select(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const OnnxNumber index = call.number("index");
  const std::string where =
      index.constant ? call.scalar(*index.constant, at::kLong) : call.add("Squeeze", {index.value});
  call.set_result(call.add("Gather", {call.tensor("self"), where}, {{"axis", dim}}));
}

// Both clamp an end after the end of a dimension.
void slice(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const OnnxNumber begin = call.has("start") ? call.number("start") : OnnxNumber(0);
  const OnnxNumber end =
      call.has("end") ? call.number("end") : OnnxNumber(std::numeric_limits<std::int64_t>::max());
  const std::int64_t step = call.integer("step");
  if (step == 1 && begin.constant == 0 && end.constant == std::numeric_limits<std::int64_t>::max())
    return call.set_result_to_argument("self");
  call.set_result(call.add("Slice", {call.tensor("self"), call.vector_of({begin}), call.vector_of({end}),
                                     call.int64s({dim}), call.int64s({step})}));
}

// The start may be counted from the end.
void narrow(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const OnnxNumber start = call.number("start"), length = call.number("length");
  const std::string begin = call.vector_of({start});
  const bool reaches_end =
      start.constant && length.constant && *start.constant < 0 && *start.constant + *length.constant == 0;
  const std::string end = reaches_end ? call.int64s({std::numeric_limits<std::int64_t>::max()})
                                      : call.add("Add", {begin, call.vector_of({length})});
  call.set_result(call.add("Slice", {call.tensor("self"), begin, end, call.int64s({dim})}));
}

void flip(OnnxCall& call) {
  const std::vector<std::int64_t> dims = call.dims("dims", call.rank("self"));
  if (dims.empty()) return call.set_result(call.add("Identity", {call.tensor("self")}));
  const auto repeated = [&](std::int64_t number) {
    return call.int64s(std::vector<std::int64_t>(dims.size(), number));
  };
  call.set_result(call.add(
      "Slice", {call.tensor("self"), repeated(-1), repeated(std::numeric_limits<std::int64_t>::min()),
                call.int64s(dims), repeated(-1)}));
}

// Half of each dimension moves to the other end.
OnnxMapping shift_half(bool is_inverse) {
  return [is_inverse](OnnxCall& call) {
    const std::int64_t rank = call.rank("self");
    std::vector<std::int64_t> dims = call.dims("dim", rank);
    if (!call.has("dim"))
      for (std::int64_t dim = 0; dim < rank; ++dim) dims.push_back(dim);
    std::string x = call.tensor("self");
    for (const std::int64_t dim : dims) {
      const ProgramSize& size = call.meta("self").sizes[static_cast<std::size_t>(dim)];
      if (!size.expression.empty()) call.refuse("the size of a dimension that it shifts is not constant");
      const std::string axis = call.int64s({dim}),
                        cut = call.int64s({is_inverse ? size.number / 2 : (size.number + 1) / 2}),
                        end = call.int64s({std::numeric_limits<std::int64_t>::max()});
      x = call.add(
          "Concat",
          {call.add("Slice", {x, cut, end, axis}), call.add("Slice", {x, call.int64s({0}), cut, axis})},
          {{"axis", dim}});
    }
    call.set_result(call.add("Identity", {x}));
  };
}

// Elements that leave at the end return at the front.
void roll(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  const std::vector<std::int64_t> dims = call.dims("dims", rank), shifts = call.integers("shifts");
  if (dims.size() != shifts.size()) call.refuse("it rolls without named dimensions");
  std::string x = call.tensor("self");
  const std::string zero = call.int64s({0}), end = call.int64s({std::numeric_limits<std::int64_t>::max()});
  for (std::size_t i = 0; i < dims.size(); ++i) {
    std::int64_t shift = shifts[i];
    const ProgramSize& size = call.meta("self").sizes[static_cast<std::size_t>(dims[i])];
    if (size.expression.empty() && size.number > 0) shift %= size.number;
    if (shift == 0) continue;
    if (!size.expression.empty() && (shift > 1 || shift < -1))
      call.refuse("it rolls a size that is not constant by more than 1");
    const std::string dim = call.int64s({dims[i]}), cut = call.int64s({-shift});
    x = call.add("Concat", {call.add("Slice", {x, cut, end, dim}), call.add("Slice", {x, zero, cut, dim})},
                 {{"axis", dims[i]}});
  }
  call.set_result(call.add("Identity", {x}));
}

constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max();

// The range of a slice or an index: where it begins and ends; nothing if that is not known.
std::optional<std::pair<std::int64_t, std::int64_t>> range_of_piece(OnnxCall& call, const ProgramSize& size) {
  const bool is_index = call.has("index");
  if (!is_index && call.integer("step") != 1) return std::nullopt;
  const OnnxNumber first = is_index            ? call.number("index")
                           : call.has("start") ? call.number("start")
                                               : OnnxNumber(0),
                   last = is_index
                              ? OnnxNumber(first.constant == -1 ? kToEnd : first.constant.value_or(0) + 1)
                          : call.has("end") ? call.number("end")
                                            : OnnxNumber(kToEnd);
  if (!first.constant || !last.constant) return std::nullopt;
  std::int64_t begin = *first.constant, end = *last.constant;
  if (size.expression.empty()) {
    const auto clamped = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + size.number : at, 0, size.number);
    };
    begin = clamped(begin);
    end = std::max(clamped(end), begin);
    return std::pair(begin, end == size.number ? kToEnd : end);
  }
  const bool is_ordered = end == kToEnd || begin == 0 || ((begin < 0) == (end < 0) && begin <= end);
  return is_ordered ? std::optional(std::pair(begin, end)) : std::nullopt;
}

}  // namespace

std::string with_piece(OnnxCall& call, const std::string& piece) {
  if (!call.is_tensor("self") || !call.has("dim") || (!call.has("index") && !call.has("step"))) return "";
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const auto range = range_of_piece(call, call.meta("self").sizes[static_cast<std::size_t>(dim)]);
  if (!range) return "";
  const std::string whole = call.tensor("self"), axis = call.int64s({dim});
  const auto rest = [&](std::int64_t begin, std::int64_t end) {
    return call.add("Slice", {whole, call.int64s({begin}), call.int64s({end}), axis});
  };
  std::vector<std::string> parts;
  if (range->first != 0) parts.push_back(rest(0, range->first));
  parts.push_back(call.has("index") ? call.add("Unsqueeze", {piece, axis}) : piece);
  if (range->second != kToEnd) parts.push_back(rest(range->second, kToEnd));
  return parts.size() == 1 ? parts[0] : call.add("Concat", parts, {{"axis", dim}});
}

OnnxMappings onnx_pieces() {
  return {{"cat", &concatenate},
          {"concat", &concatenate},
          {"concatenate", &concatenate},
          {"stack", &stack},
          {"split.Tensor", &split},
          {"split.sizes", &split},
          {"split_with_sizes", &split},
          {"unsafe_split.Tensor", &split},
          {"chunk", &split},
          {"unsafe_chunk", &split},
          {"tensor_split.sections", &split},
          {"tensor_split.indices", &split_at},
          {"hstack", stack_along(1, false)},
          {"vstack", stack_along(2, false)},
          {"column_stack", stack_along(2, true)},
          {"unbind.int", &unbind},
          {"select.int", &select},
          {"slice.Tensor", &slice},
          {"narrow", &narrow},
          {"flip", &flip},
          {"fft_fftshift", shift_half(false)},
          {"fft_ifftshift", shift_half(true)},
          {"roll", &roll}};
}

}  // namespace kindling
