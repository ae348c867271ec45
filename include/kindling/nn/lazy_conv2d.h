#pragma once

#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/nn/lazy_weights.h"

namespace kindling {

struct LazyConv2dOptions {
  std::int64_t out_channels = 1;
  std::array<std::int64_t, 2> kernel_size{3, 3};  // height, width
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  bool bias = true;
  WeightInit init = WeightInit::kaiming_uniform;
};

// A convolution that determines its input channels from the first batch: [batch, in, height, width] → [batch,
// out_channels, …], with a `weight` [out, in, kernel height, kernel width].
class KINDLING_API LazyConv2dImpl : public LazyWeights<LazyConv2dImpl> {
 public:
  explicit LazyConv2dImpl(LazyConv2dOptions options);

  const LazyConv2dOptions& options() const noexcept { return options_; }
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 private:
  LazyConv2dOptions options_;
};
TORCH_MODULE(LazyConv2d);

}  // namespace kindling
