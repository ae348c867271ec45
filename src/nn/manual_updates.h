#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace kindling {

// The implementation of a ManualModule's update(), available while its training_step runs.
class ManualUpdates {
 public:
  virtual ~ManualUpdates() = default;
  virtual void update(std::string_view optimizer, const at::Tensor& loss, bool retain_graph) = 0;
};

}  // namespace kindling
