#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"

namespace kindling {

// Overlapping windows of consecutive rows, gathered from one tensor of all rows: a batch has the rows
// [batch, window, …], then the labels [batch, …].
class KINDLING_API WindowDataset : public Dataset {
 public:
  // `rows` [rows, …] and `labels` [samples, …] are on the CPU; `labels` may be undefined: then a batch has
  // windows only. Window i consists of the rows from begins[i] on, all of which exist.
  WindowDataset(const at::Tensor& rows, const std::vector<std::int64_t>& begins, std::int64_t window,
                const at::Tensor& labels);

  std::int64_t size() const override { return begins_.size(0); }
  void gather(const at::Tensor& indices, Batch& batch) const override;
  bool is_thread_safe() const override { return true; }

  const at::Tensor& labels() const { return labels_; }
  // Returns all that the samples consist of: rows, begins, and labels if there are any.
  std::vector<at::Tensor> tensors() const;

 private:
  at::Tensor rows_, begins_, labels_;
  std::int64_t window_;
};

// Return what a data set has in host memory, without gathering its samples. Empty or undefined: nothing.
KINDLING_API std::vector<at::Tensor> tensors_in_memory(const Dataset& dataset);
KINDLING_API at::Tensor labels_in_memory(const Dataset& dataset);

}  // namespace kindling
