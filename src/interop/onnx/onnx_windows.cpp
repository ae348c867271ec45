#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/repeat_interleave.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "interop/onnx/onnx_operators.h"

// Operators that read values at computed places: windows, diagonals, repetitions, points of a grid.
namespace kindling {
namespace {

// Differences of neighbours, n times.
void difference(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  std::string x = call.operand("self", type);
  if (call.has("prepend")) x = call.add("Concat", {call.operand("prepend", type), x}, {{"axis", dim}});
  if (call.has("append")) x = call.add("Concat", {x, call.operand("append", type)}, {{"axis", dim}});
  const std::string axis = call.int64s({dim}), zero = call.int64s({0}), one = call.int64s({1}),
                    before_last = call.int64s({-1}),
                    end = call.int64s({std::numeric_limits<std::int64_t>::max()});
  for (std::int64_t i = 0; i < call.integer("n"); ++i)
    x = call.add(type == at::kBool ? "Xor" : "Sub",
                 {call.add("Slice", {x, one, end, axis}), call.add("Slice", {x, zero, before_last, axis})});
  call.set_result(x);
}

bool is_constant(const ProgramSize& size) { return size.expression.empty(); }

const ProgramSize& size_of_self(const OnnxCall& call, std::int64_t dim) {
  return call.meta("self").sizes[static_cast<std::size_t>(dim)];
}

// Windows of `size` elements, `step` apart; they become the last dimension.
void unfold(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  if (rank == 0) call.refuse("its tensor has no dimension");
  const std::int64_t dim = call.dim("dimension", rank), size = call.integer("size"),
                     step = call.integer("step");
  const ProgramSize& length = size_of_self(call, dim);
  const at::Tensor within = at::arange(size, at::kLong);
  std::string places;
  if (is_constant(length)) {
    const at::Tensor begins = at::arange(0, length.number - size + 1, step, at::kLong);
    places = call.graph().constant(begins.unsqueeze(1) + within);
  } else {
    const std::string end = call.add("Add", {call.add("Squeeze", {call.vector_of({call.size("self", dim)})}),
                                             call.scalar(1 - size, at::kLong)});
    const std::string begins =
        call.add("Range", {call.scalar(0, at::kLong), end, call.scalar(step, at::kLong)});
    places =
        call.add("Add", {call.add("Unsqueeze", {begins, call.int64s({1})}), call.graph().constant(within)});
  }
  const std::string windows = call.add("Gather", {call.tensor("self"), places}, {{"axis", dim}});
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i <= rank; ++i)
    if (i != dim + 1) order.push_back(i);
  order.push_back(dim + 1);
  call.set_result(call.permuted(windows, order));
}

std::int64_t constant_size(OnnxCall& call, std::int64_t dim) {
  const ProgramSize& size = size_of_self(call, dim);
  if (!is_constant(size)) call.refuse("the size of dimension " + std::to_string(dim) + " is not constant");
  return size.number;
}

// [batch, channels, height, width] to columns, one per window.
void columns_of_windows(OnnxCall& call) {
  const std::int64_t rank = call.rank("self");
  const auto kernel = call.integers("kernel_size"), dilation = call.integers("dilation"),
             padding = call.integers("padding"), stride = call.integers("stride");
  const auto places = [&](std::size_t i, std::int64_t size) {  // [kernel, windows]
    const std::int64_t last = size + 2 * padding[i] - dilation[i] * (kernel[i] - 1);
    return at::arange(kernel[i], at::kLong).mul(dilation[i]).unsqueeze(1) +
           at::arange(0, last, stride[i], at::kLong);
  };
  const std::int64_t height = constant_size(call, rank - 2), width = constant_size(call, rank - 1),
                     padded_width = width + 2 * padding[1];
  const at::Tensor rows = places(0, height), columns = places(1, width);
  const at::Tensor all =
      rows.view({kernel[0], 1, -1, 1}) * padded_width + columns.view({1, kernel[1], 1, -1});
  std::vector<std::int64_t> pads(2 * static_cast<std::size_t>(rank));
  for (std::size_t i = 0; i < 2; ++i) {
    pads[static_cast<std::size_t>(rank) - 2 + i] = padding[i];
    pads[2 * static_cast<std::size_t>(rank) - 2 + i] = padding[i];
  }
  std::vector<std::int64_t> flat(static_cast<std::size_t>(rank) - 1),
      result(static_cast<std::size_t>(rank) - 1);
  flat.back() = -1;  // 0: as it is
  result[result.size() - 2] = constant_size(call, rank - 3) * kernel[0] * kernel[1];
  result.back() = rows.size(1) * columns.size(1);
  const std::string padded = call.add("Pad", {call.tensor("self"), call.int64s(pads)});
  const std::string values = call.add(
      "Gather", {call.add("Reshape", {padded, call.int64s(flat)}), call.graph().constant(all.flatten())},
      {{"axis", rank - 2}});
  call.set_result(call.add("Reshape", {values, call.int64s(result)}));
}

// The elements of two dimensions become the last one.
void diagonal(OnnxCall& call) {
  const std::int64_t rank = call.rank("self"), first = call.dim("dim1", rank),
                     second = call.dim("dim2", rank), rows = constant_size(call, first),
                     columns = constant_size(call, second), offset = call.integer("offset"),
                     begin_row = std::max<std::int64_t>(-offset, 0),
                     begin_column = std::max<std::int64_t>(offset, 0),
                     count = std::max<std::int64_t>(std::min(rows - begin_row, columns - begin_column), 0);
  std::vector<std::int64_t> order;
  std::vector<OnnxNumber> sizes;
  for (std::int64_t dim = 0; dim < rank; ++dim)
    if (dim != first && dim != second) {
      order.push_back(dim);
      sizes.push_back(call.size("self", dim));
    }
  order.insert(order.end(), {first, second});
  sizes.emplace_back(rows * columns);
  const at::Tensor places =
      at::arange(count, at::kLong).mul(columns + 1) + (begin_row * columns + begin_column);
  const std::string flat = call.reshaped(call.permuted(call.tensor("self"), order), sizes);
  call.set_result(call.add("Gather", {flat, call.graph().constant(places)}, {{"axis", rank - 2}}));
}

// Blocks of pixels become channels.
void pixel_unshuffle(OnnxCall& call) {
  const std::int64_t rank = call.rank("self"), factor = call.integer("downscale_factor");
  const std::int64_t channels = constant_size(call, rank - 3),
                     height = constant_size(call, rank - 2) / factor,
                     width = constant_size(call, rank - 1) / factor;
  std::vector<OnnxNumber> blocks, result;
  std::vector<std::int64_t> order;
  for (std::int64_t dim = 0; dim < rank - 3; ++dim) {
    blocks.push_back(call.size("self", dim));
    result.push_back(call.size("self", dim));
    order.push_back(dim);
  }
  for (const std::int64_t size : {channels, height, factor, width, factor}) blocks.emplace_back(size);
  for (const std::int64_t place : {0, 2, 4, 1, 3}) order.push_back(rank - 3 + place);
  for (const std::int64_t size : {channels * factor * factor, height, width}) result.emplace_back(size);
  call.set_result(call.reshaped(call.permuted(call.reshaped(call.tensor("self"), blocks), order), result));
}

// Each element several times in sequence; without a dimension, of all elements.
void repeat_each(OnnxCall& call) {
  std::string x = call.tensor("self");
  const bool is_flat = !call.has("dim");
  if (is_flat) x = call.reshaped(x, std::vector<std::int64_t>{-1});
  const std::int64_t dim = is_flat ? 0 : call.dim("dim", call.rank("self"));
  std::string places;
  if (call.is_tensor("repeats")) {
    const at::Tensor* const repeats = call.constant("repeats");
    if (repeats == nullptr)
      call.refuse("its repeats depend on the inputs, and so does the size of its result");
    if (repeats->numel() == 1) call.refuse("its repeats are a tensor of one number", "", "pass the number");
    places = call.graph().constant(at::repeat_interleave(repeats->to(at::kLong)));
  } else {
    const std::string count = call.operand("repeats", at::kLong);
    const std::string size =
        call.add("Squeeze", {call.add("Shape", {x}, {{"start", dim}, {"end", dim + 1}})});
    const std::string all = call.add(
        "Range", {call.scalar(0, at::kLong), call.add("Mul", {size, count}), call.scalar(1, at::kLong)});
    places = call.add("Div", {all, call.add("Max", {count, call.scalar(1, at::kLong)})});  // none if it is 0
  }
  call.set_result(call.add("Gather", {x, places}, {{"axis", dim}}));
}

// Points of a grid: modes and paddings by their numbers in ATen.
void grid_sampler(OnnxCall& call) {
  constexpr const char* kModes[] = {"linear", "nearest", "cubic"};
  constexpr const char* kPaddings[] = {"zeros", "border", "reflection"};
  const auto mode = static_cast<std::size_t>(call.integer("interpolation_mode")),
             padding = static_cast<std::size_t>(call.integer("padding_mode"));
  call.set_result(call.add("GridSample", {call.tensor("input"), call.tensor("grid")},
                           {{"mode", std::string(kModes[mode])},
                            {"padding_mode", std::string(kPaddings[padding])},
                            {"align_corners", call.flag("align_corners") ? 1 : 0}}));
}

void affine_grid(OnnxCall& call) {
  call.set_result(call.add("AffineGrid", {call.tensor("theta"), call.vector_of(call.numbers("size"))},
                           {{"align_corners", call.flag("align_corners") ? 1 : 0}}));
}

// Distances of all pairs of rows.
void distances(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const double order = call.real("p");
  const std::string last = call.int64s({-1});
  const auto row = [&](const char* name, std::int64_t from_end) {
    return call.add("Unsqueeze", {call.operand(name, type), call.int64s({call.rank(name) - from_end})});
  };
  const std::string apart = call.add("Sub", {row("x1", 1), row("x2", 2)});
  const auto reduced = [&](const char* kind, const std::string& x) {
    return call.add(kind, {x, last}, {{"keepdims", 0}});
  };
  if (order == 2) return call.set_result(reduced("ReduceL2", apart));
  if (order == 1) return call.set_result(reduced("ReduceL1", apart));
  const std::string size = call.add("Abs", {apart});
  if (std::isinf(order)) return call.set_result(reduced("ReduceMax", size));
  if (order == 0) call.refuse("it counts differences (a norm of order 0)");
  const std::string sum = reduced("ReduceSum", call.add("Pow", {size, call.scalar(order, type)}));
  call.set_result(call.add("Pow", {sum, call.scalar(1 / order, type)}));
}

}  // namespace

OnnxMappings onnx_windows() {
  return {{"diff", &difference},
          {"unfold", &unfold},
          {"im2col", &columns_of_windows},
          {"diagonal", &diagonal},
          {"pixel_unshuffle", &pixel_unshuffle},
          {"repeat_interleave.self_int", &repeat_each},
          {"repeat_interleave.self_Tensor", &repeat_each},
          {"grid_sampler", &grid_sampler},
          {"grid_sampler_2d", &grid_sampler},
          {"grid_sampler_3d", &grid_sampler},
          {"affine_grid_generator", &affine_grid},
          {"cdist", &distances}};
}

}  // namespace kindling
