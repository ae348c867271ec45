#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Base of layers that determine their input size from the first batch; until then they have no parameters.
class KINDLING_API LazyLayer {
 public:
  virtual ~LazyLayer();
  virtual bool is_materialized() const = 0;
  // Creates the parameters for the input size of `weight`, a saved weight of this layer.
  virtual void materialize_like(const at::Tensor& weight) = 0;
  // Removes the parameters again.
  virtual void dematerialize() = 0;
  // Announces that the parameters were created for their shapes only: their initial values are drawn in the
  // next forward, and the layer is not materialized until then. Returns false if the layer keeps the values
  // that it has, as by default.
  virtual bool draw_in_next_forward() { return false; }
  // The names of the parameters that it will have.
  virtual std::vector<std::string> parameter_names() const { return {"weight"}; }
  // The names of those to create with requires_grad = false; set by Module::freeze.
  std::set<std::string> frozen{};
  // The type of the parameters to create; a trainer's precision may change it.
  at::ScalarType type = at::kFloat;
  // True if weights with four dimensions use the channels-last memory format; set by a trainer.
  bool channels_last = false;
};

}  // namespace kindling
