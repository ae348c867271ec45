#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kindling/tensors/batch.h"

namespace kindling {

// How a batch is nested, and the memory layout of its tensors.
class BatchLayout {
 public:
  explicit BatchLayout(const Batch& batch);
  bool fits(const Batch& batch) const;

 private:
  struct Leaf {
    std::vector<std::int64_t> sizes, strides;  // strides of dense tensors only
    at::ScalarType dtype;
    at::Device device;
    at::Layout layout;
    bool requires_grad;
  };
  std::vector<Leaf> leaves_;
  std::shared_ptr<const BatchStructure> structure_;
};

}  // namespace kindling
