#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kindling/data/dataset.h"
#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// The tensors of a data set in the memory of a GPU, where batches of them are gathered.
class ResidentTensors {
 public:
  // Copies them to the device if `wanted` ("auto", "on" or "off") allows it; otherwise returns nullptr.
  // Throws DataError if "on" is impossible.
  static std::shared_ptr<const ResidentTensors> of(const Dataset& dataset, Device device,
                                                   const std::string& wanted);

  Device device() const { return there_.front().device(); }
  // True if no operator has written to the set's tensors since the copy.
  bool are_up_to_date() const;
  // Gathers int64 [batch] indices on the GPU: one indexed copy per tensor, queued.
  Batch gather(const at::Tensor& indices) const;

 private:
  ResidentTensors(const std::vector<at::Tensor>& tensors, Device device);

  // The state of a tensor of the set when it was copied.
  struct Source {
    at::Tensor tensor;
    const void* bytes;
    std::int64_t version;
  };
  std::vector<Source> sources_;
  std::vector<at::Tensor> there_;
};

}  // namespace kindling
