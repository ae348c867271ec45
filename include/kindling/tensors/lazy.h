#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// What layers share whose input size is found at the first batch: until then they have no parameters.
class KINDLING_API LazyLayer {
 public:
  virtual ~LazyLayer();
  virtual bool is_materialized() const = 0;
  // Makes the parameters for the input size that `weight` (a weight of this layer, as saved) was made for.
  virtual void materialize_like(const at::Tensor& weight) = 0;
  // Takes the parameters away again.
  virtual void dematerialize() = 0;
  // Those that it will have.
  virtual std::vector<std::string> parameter_names() const { return {"weight"}; }
  // Those of them that are to be made with requires_grad = false: Module::freeze says which.
  std::set<std::string> frozen{};
  // That they will have; a trainer's precision may say otherwise.
  at::ScalarType type = at::kFloat;
  // Whether weights with four dimensions lie in memory channel by channel of each pixel, as a trainer may
  // want it.
  bool channels_last = false;
};

}  // namespace kindling
