#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/nn/lazy_weights.h"

namespace kindling {

struct LazyLinearOptions {
  std::int64_t out_features = 1;
  bool bias = true;
  WeightInit init = WeightInit::kaiming_uniform;
};

// A linear layer that determines its input size from the first batch: [batch, …, in] → [batch, …,
// out_features], with a `weight` [out, in].
class KINDLING_API LazyLinearImpl : public LazyWeights<LazyLinearImpl> {
 public:
  explicit LazyLinearImpl(std::int64_t out_features)
      : LazyLinearImpl(LazyLinearOptions{.out_features = out_features}) {}
  explicit LazyLinearImpl(LazyLinearOptions options);

  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 private:
  LazyLinearOptions options_;
};
TORCH_MODULE(LazyLinear);

}  // namespace kindling
