#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace kindling {

// Copies of tensors as they were before a step that may have to be taken back.
class KeptTensors {
 public:
  // Undefined ones are passed over. Several places may hold the same tensor.
  explicit KeptTensors(const std::vector<at::Tensor*>& places);

  // Where `found_inf`, a scalar on their device, is not 0, the tensors at these places get the values back
  // that were there; the places are those of the constructor in the same order, what they hold may be another
  // tensor. No host wait.
  void put_back(const std::vector<at::Tensor*>& places, const at::Tensor& found_inf) const;

 private:
  std::vector<at::Tensor> copies_;
  std::vector<std::size_t> copy_of_;  // of each place; kNothing where there was none
};

}  // namespace kindling
