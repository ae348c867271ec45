#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/nn/weight_init.h"
#include "kindling/tensors/lazy.h"

namespace kindling {

struct LazyLinearOptions {
  std::int64_t out_features = 1;
  bool bias = true;
  WeightInit init = WeightInit::kaiming_uniform;
};

// A linear layer that finds its input size at the first batch: [batch, …, in] → [batch, …, out_features].
// Until then it has no parameters; then they are `weight` [out, in] and `bias` [out], as Python names them.
class KINDLING_API LazyLinearImpl : public torch::nn::Cloneable<LazyLinearImpl>, public LazyLayer {
 public:
  explicit LazyLinearImpl(std::int64_t out_features)
      : LazyLinearImpl(LazyLinearOptions{.out_features = out_features}) {}
  explicit LazyLinearImpl(LazyLinearOptions options);

  at::Tensor forward(const at::Tensor& input);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  bool is_materialized() const override { return weight.defined(); }
  void materialize_like(const at::Tensor& weight) override;
  void dematerialize() override;

  at::Tensor weight, bias;  // undefined until the first batch

 private:
  void materialize(std::int64_t in_features, at::Device device);

  LazyLinearOptions options_;
};
TORCH_MODULE(LazyLinear);

}  // namespace kindling
