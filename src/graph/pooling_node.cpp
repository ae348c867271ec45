#include "graph/pooling_node.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "graph/loop_node.h"
#include "graph/out_operator.h"
#include "graph/pooling_kernels.h"

namespace kindling {
namespace {

// Of how many LibTorch would have to use more to be as fast where our loop is several times as fast as its
// own.
constexpr int kFewThreads = 4;
// Channels of a multiple of this fill registers in LibTorch's loop, too.
constexpr std::int64_t kFilledRegisters = 16;

// Nothing where the three do not lie alike.
std::optional<fast::PoolingImages> images_of(const at::Tensor& x, const at::Tensor& values,
                                             const at::Tensor& indices) {
  const auto lie_so = [&](at::MemoryFormat format) {
    return x.is_contiguous(format) && values.is_contiguous(format) && indices.is_contiguous(format);
  };
  const bool is_one = x.dim() == 3;
  const fast::PoolingImages images{.batch = is_one ? 1 : x.size(0),
                                   .channels = x.size(-3),
                                   .is_channels_last = !lie_so(at::MemoryFormat::Contiguous)};
  if (images.is_channels_last && (is_one || !lie_so(at::MemoryFormat::ChannelsLast))) return std::nullopt;
  return images;
}

bool is_worth_it(const fast::PoolingImages& images, std::int64_t num_elements) {
  const std::int64_t lanes = images.is_channels_last ? images.channels : images.batch * images.channels;
  if (lanes < fast::kFewestPoolingLanes) return false;
  if (num_elements <= kMostElements) return true;
  if (images.is_channels_last && images.channels % kFilledRegisters == 0) return false;
  return at::get_num_threads() <= kFewThreads;
}

// Height and width, of which the first may stand for both.
std::pair<fast::PoolingAxis, fast::PoolingAxis> axes_of(const torch::jit::Stack& in,
                                                        const at::Tensor& values) {
  const auto of_axis = [&](std::size_t argument, std::size_t axis) {
    std::vector<std::int64_t> both = in[argument].toIntVector();
    if (both.empty()) both = in[1].toIntVector();  // a stride that is left out
    return both[std::min(axis, both.size() - 1)];
  };
  const at::Tensor& x = in[0].toTensor();
  const auto axis = [&](std::size_t number) {
    const std::int64_t dim = static_cast<std::int64_t>(number) - 2;
    return fast::PoolingAxis{.size = x.size(dim),
                             .out_size = values.size(dim),
                             .kernel = of_axis(1, number),
                             .stride = of_axis(2, number),
                             .padding = of_axis(3, number),
                             .dilation = of_axis(4, number)};
  };
  return {axis(0), axis(1)};
}

}  // namespace

std::unique_ptr<ReplayNode> max_pool_node(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                          const std::vector<at::Tensor>& results) {
  const at::Tensor &x = arguments[0].toTensor(), &values = results[0], &indices = results[1];
  const bool is_float = x.scalar_type() == at::kFloat;
  if ((!is_float && x.scalar_type() != at::kBFloat16) || values.numel() == 0) return nullptr;
  const auto images = images_of(x, values, indices);
  if (!images || !is_worth_it(*images, x.numel())) return nullptr;
  const auto [rows, columns] = axes_of(arguments, values);
  if (rows.size * columns.size > std::numeric_limits<std::int32_t>::max()) return nullptr;
  fast::PoolingWindows windows(rows, columns);
  if (windows.has_empty) return nullptr;
  const Elements from(x), to(values), places(indices);
  if (is_float)
    return loop_node([=, windows = std::move(windows), images = *images] {
      fast::max_pool(windows, images, from.data(), to.data(), places.data<std::int64_t>());
    });
  const auto out = out_operator(op);
  if (!out) return nullptr;
  torch::jit::Stack stack = arguments;
  stack.insert(stack.end(), results.begin(), results.end());
  return loop_node([=, windows = std::move(windows), images = *images,
                    by_libtorch = WritingNode(*out, std::move(stack))]() mutable {
    if (!fast::max_pool(windows, images, from.data<std::uint16_t>(), to.data<std::uint16_t>(),
                        places.data<std::int64_t>()))
      by_libtorch.run();
  });
}

}  // namespace kindling
