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

// The tensors of a data set in the memory of a card, where batches of them are gathered.
class ResidentTensors {
 public:
  // Copies them there where `wanted` lets them be: "auto", "on" or "off". nullptr: they are not. Throws
  // DataError where "on" cannot be.
  static std::shared_ptr<const ResidentTensors> of(const Dataset& dataset, Device device,
                                                   const std::string& wanted);

  Device device() const { return there_.front().device(); }
  // Whether the set still has what has been copied: no operator has written to its tensors.
  bool are_up_to_date() const;
  // Of int64 [batch] on the card: one indexed copy per tensor, queued.
  Batch gather(const at::Tensor& indices) const;

 private:
  ResidentTensors(const std::vector<at::Tensor>& tensors, Device device);

  // How a tensor of the set was when it was copied.
  struct Source {
    at::Tensor tensor;
    const void* bytes;
    std::int64_t version;
  };
  std::vector<Source> sources_;
  std::vector<at::Tensor> there_;
};

}  // namespace kindling
