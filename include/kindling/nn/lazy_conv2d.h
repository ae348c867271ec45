#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/nn/weight_init.h"
#include "kindling/tensors/lazy.h"

namespace kindling {

struct LazyConv2dOptions {
  std::int64_t out_channels = 1;
  std::array<std::int64_t, 2> kernel_size{3, 3};  // height, width
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  bool bias = true;
  WeightInit init = WeightInit::kaiming_uniform;
};

// A convolution that finds its input channels at the first batch: [batch, in, height, width] → [batch,
// out_channels, …]. Until then it has no parameters; then they are `weight` [out, in, kernel height, kernel
// width] and `bias` [out].
class KINDLING_API LazyConv2dImpl : public torch::nn::Cloneable<LazyConv2dImpl>, public LazyLayer {
 public:
  explicit LazyConv2dImpl(LazyConv2dOptions options);

  at::Tensor forward(const at::Tensor& input);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  bool is_materialized() const override { return weight.defined(); }
  void materialize_like(const at::Tensor& weight) override;
  void dematerialize() override;

  at::Tensor weight, bias;  // undefined until the first batch

 private:
  void materialize(std::int64_t in_channels, at::Device device);

  LazyConv2dOptions options_;
};
TORCH_MODULE(LazyConv2d);

}  // namespace kindling
