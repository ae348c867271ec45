#include "graph/pooling_node.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "graph/loop_node.h"
#include "graph/pooling_kernels.h"

namespace kindling {
namespace {

// Channels of a multiple of this fill registers in LibTorch's loop, too.
constexpr std::int64_t kFilledRegisters = 16;

// Each is kept as 8 bytes.
constexpr std::int64_t kMostWindows = 1 << 20;

// Nothing where the three do not lie alike. `x`: what the windows cover.
std::optional<fast::PoolingImages> images_of(const at::Tensor& x, const at::Tensor& values,
                                             const at::Tensor& indices) {
  const auto lie_so = [&](at::MemoryFormat format) {
    return x.is_contiguous(format) && values.is_contiguous(format) && indices.is_contiguous(format);
  };
  const bool is_one = x.dim() == 3, are_planes = lie_so(at::MemoryFormat::Contiguous);
  if (!are_planes && (is_one || !lie_so(at::MemoryFormat::ChannelsLast))) return std::nullopt;
  return fast::PoolingImages{.batch = is_one ? 1 : x.size(0),
                             .channels = x.size(-3),
                             .num_places = x.size(-2) * x.size(-1),
                             .num_windows = values.size(-2) * values.size(-1),
                             .is_channels_last = !are_planes};
}

bool is_worth_it(const fast::PoolingImages& images, std::int64_t num_elements) {
  const std::int64_t lanes = images.is_channels_last ? images.channels : images.batch * images.channels;
  if (lanes < fast::kFewestPoolingLanes) return false;
  if (num_elements > kMostElements && images.is_channels_last && images.channels % kFilledRegisters == 0)
    return false;
  return is_fast_alone(num_elements, images.is_channels_last ? 2 : 8);
}

// Height and width, of which the first number may stand for both. `kernel`: the argument's number; stride,
// padding and dilation come behind it.
std::array<fast::PoolingAxis, 2> axes_of(const torch::jit::Stack& in, std::size_t kernel, const at::Tensor& x,
                                         const at::Tensor& values) {
  const auto of_axis = [&](std::size_t argument, std::size_t axis) {
    std::vector<std::int64_t> both = in[argument].toIntVector();
    if (both.empty()) both = in[kernel].toIntVector();  // a stride that is left out
    return both[std::min(axis, both.size() - 1)];
  };
  const auto axis = [&](std::size_t number) {
    const std::int64_t dim = static_cast<std::int64_t>(number) - 2;
    return fast::PoolingAxis{.size = x.size(dim),
                             .out_size = values.size(dim),
                             .kernel = of_axis(kernel, number),
                             .stride = of_axis(kernel + 1, number),
                             .padding = of_axis(kernel + 2, number),
                             .dilation = of_axis(kernel + 3, number)};
  };
  return {axis(0), axis(1)};
}

bool are_apart(const fast::PoolingAxis& axis) { return axis.stride > (axis.kernel - 1) * axis.dilation; }

}  // namespace

std::unique_ptr<ReplayNode> max_pool_node(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                          const std::vector<at::Tensor>& results) {
  const at::Tensor &x = arguments[0].toTensor(), &values = results[0], &indices = results[1];
  const bool is_float = x.scalar_type() == at::kFloat;
  if ((!is_float && x.scalar_type() != at::kBFloat16) || values.numel() == 0) return nullptr;
  const auto images = images_of(x, values, indices);
  if (!images || !is_worth_it(*images, x.numel())) return nullptr;
  if (images->num_places > std::numeric_limits<std::int32_t>::max() || images->num_windows > kMostWindows)
    return nullptr;
  const auto [rows, columns] = axes_of(arguments, 1, x, values);
  fast::PoolingWindows windows(rows, columns);
  if (windows.has_empty) return nullptr;
  const Elements from(x), to(values), places(indices);
  if (is_float)
    return loop_node([=, windows = std::move(windows), images = *images] {
      fast::max_pool(windows, images, from.data(), to.data(), places.data<std::int64_t>());
    });
  const auto by_libtorch = writing_node(op, arguments, results);
  if (!by_libtorch) return nullptr;
  return loop_node([=, windows = std::move(windows), images = *images, by_libtorch = *by_libtorch]() mutable {
    if (!fast::max_pool(windows, images, from.data<std::uint16_t>(), to.data<std::uint16_t>(),
                        places.data<std::int64_t>()))
      by_libtorch.run();
  });
}

std::unique_ptr<ReplayNode> max_pool_backward_node(const c10::OperatorHandle& op,
                                                   const torch::jit::Stack& arguments,
                                                   const std::vector<at::Tensor>& results) {
  const at::Tensor &gradient = arguments[0].toTensor(), &indices = arguments[7].toTensor(), &out = results[0];
  if (gradient.scalar_type() != at::kBFloat16 || gradient.numel() == 0) return nullptr;
  const auto images = images_of(out, gradient, indices);
  const auto [rows, columns] = axes_of(arguments, 2, out, gradient);
  if (!images || !is_fast_alone(out.numel(), 1) || !are_apart(rows) || !are_apart(columns)) return nullptr;
  const auto by_libtorch = writing_node(op, arguments, results);
  if (!by_libtorch) return nullptr;
  const Elements from(gradient), places(indices), to(out);
  return loop_node([=, images = *images, by_libtorch = *by_libtorch]() mutable {
    if (!fast::max_pool_backward(images, from.data<std::uint16_t>(), places.data<std::int64_t>(),
                                 to.data<std::uint16_t>()))
      by_libtorch.run();
  });
}

}  // namespace kindling
