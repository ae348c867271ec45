#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Samples that are accessed by index. Derive from it for data that does not fit into tensors in memory.
class KINDLING_API Dataset {
 public:
  virtual ~Dataset();

  // The size of data without an end, such as those of a generator. Loaders return their samples in order:
  // they do not shuffle them. A fit needs max_steps or limit_train_batches for them, and each epoch
  // continues where the last has ended.
  static constexpr std::int64_t kEndless = std::int64_t{1} << 48;

  virtual std::int64_t size() const = 0;

  // Fills `batch` with the samples `indices` (int64, [batch], on the CPU) in their order. `batch` is either
  // empty or a batch that this set filled before and that no one else holds: its memory may be reused (resize
  // and write, or replace its tensors).
  // Random numbers of a sample come from sample_random(index), which does not depend on the batch.
  virtual void gather(const at::Tensor& indices, Batch& batch) const = 0;

  // True if several threads may call gather() at once, for different batches. Otherwise all loaders of this
  // object take turns, and have one worker at most, on request. Two data sets that share a file or a reader
  // do not know of each other: leave num_workers at 0 for them.
  virtual bool is_thread_safe() const { return false; }

  // True if slice() returns views of tensors that the set holds. Batches in order, on the CPU, are then
  // created once and kept; otherwise every batch is gathered when it is requested.
  virtual bool has_views() const { return false; }
  // Returns the samples begin…end-1 in file order. The default gathers them, as for seed 0 and epoch 0.
  virtual Batch slice(std::int64_t begin, std::int64_t end) const;
};

// Tensors in host memory, each with the samples along dimension 0: {images, labels} and the like.
class KINDLING_API TensorDataset : public Dataset {
 public:
  // Throws DataError if there are no tensors, or if a tensor has rank 0, another number of samples, or is not
  // on the CPU.
  explicit TensorDataset(std::vector<at::Tensor> tensors);

  std::int64_t size() const override;
  void gather(const at::Tensor& indices, Batch& batch) const override;
  bool is_thread_safe() const override;  // false for a derived class, until it says otherwise
  bool has_views() const override { return true; }
  Batch slice(std::int64_t begin, std::int64_t end) const override;

  const std::vector<at::Tensor>& tensors() const noexcept { return tensors_; }

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace kindling
