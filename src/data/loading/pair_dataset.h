#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"

namespace kindling {

// Rows of data sets in pairs: those of the inputs, and those of the targets, which may be the same rows.
struct RowPairs {
  std::vector<std::int64_t> inputs{}, targets{};  // of equal length
};

// Samples whose inputs and targets are different rows, such as the states of a system at two times. A batch
// has the tensors of `inputs`, then those of `targets`.
class KINDLING_API PairDataset final : public Dataset {
 public:
  // The data sets are thread-safe, and have all rows of the pairs.
  PairDataset(std::shared_ptr<const Dataset> inputs, std::shared_ptr<const Dataset> targets,
              const RowPairs& pairs);

  std::int64_t size() const override { return input_rows_.size(0); }
  void gather(const at::Tensor& indices, Batch& batch) const override;
  bool is_thread_safe() const override { return true; }

  std::int64_t bytes_per_sample() const;  // in a batch; reads a sample

 private:
  std::shared_ptr<const Dataset> inputs_, targets_;
  at::Tensor input_rows_, target_rows_;  // int64 [pairs]
};

}  // namespace kindling
