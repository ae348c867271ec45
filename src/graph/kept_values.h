#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <vector>

namespace kindling {

// Gives tensors back the values that it has found in them.
class KeptValues {
 public:
  explicit KeptValues(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
    for (const at::Tensor& tensor : tensors) values_.push_back(tensor.detach().clone());
  }
  ~KeptValues() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values_.size(); ++i) tensors_[i].copy_(values_[i]);
  }
  KeptValues(const KeptValues&) = delete;
  KeptValues& operator=(const KeptValues&) = delete;

 private:
  std::vector<at::Tensor> tensors_, values_;
};

}  // namespace kindling
