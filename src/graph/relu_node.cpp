#include "graph/relu_node.h"

#include "graph/fast_kernels.h"
#include "graph/loop_node.h"

namespace kindling {
namespace {

bool lies(const at::Tensor& tensor, at::MemoryFormat format) {
  return tensor.dim() == 4 && tensor.numel() > 0 && tensor.is_contiguous(format);
}

bool is_zero(const c10::IValue& threshold) { return threshold.toScalar().toDouble() == 0; }

}  // namespace

std::unique_ptr<ReplayNode> relu_backward_node(const torch::jit::Stack& arguments, const at::Tensor& out) {
  const at::Tensor &gradient = arguments[0].toTensor(), &x = arguments[1].toTensor();
  constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;
  if (!lies(gradient, at::MemoryFormat::Contiguous) || !lies(x, kChannelsLast) || x.is_contiguous() ||
      !lies(out, kChannelsLast) || gradient.sizes() != x.sizes() || !is_zero(arguments[2]) ||
      gradient.scalar_type() != x.scalar_type() || !is_fast_alone(x.numel(), 8))
    return nullptr;
  const fast::Images images{.batch = x.size(0), .channels = x.size(1), .num_places = x.size(2) * x.size(3)};
  const Elements from(gradient), where(x), to(out);
  if (x.scalar_type() == at::kFloat)
    return loop_node([=] { fast::relu_backward_of_planes(images, from.data(), where.data(), to.data()); });
  if (x.scalar_type() != at::kBFloat16) return nullptr;
  return loop_node([=] {
    fast::relu_backward_of_planes(images, from.data<std::uint16_t>(), where.data<std::uint16_t>(),
                                  to.data<std::uint16_t>());
  });
}

}  // namespace kindling
