#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/dataset.h"

namespace kindling {

struct SequenceWindowsOptions {
  std::int64_t batch_size = 32;
  std::int64_t num_steps = 35;  // window length
};

// Splits long sequences into windows, for truncated back-propagation through time: row r of a batch continues
// row r of the batch before (the sequential partitioning of Dive into Deep Learning), so a CarriedState can
// keep the hidden state. The last window of a sequence may be shorter. After the windows of the first
// batch_size sequences come those of the next ones, for which the state must be reset:
// CarriedStateOptions{.reset_every_n_batches = num_windows()}.
class KINDLING_API SequenceWindows : public Dataset {
 public:
  // Takes tensors [sequences, time, …], such as tokens and the tokens that follow them. Throws DataError for
  // other shapes, and if the batch size does not divide the number of sequences.
  SequenceWindows(std::vector<at::Tensor> sequences, SequenceWindowsOptions options);

  // Returns one long series [time, …] as `num_rows` sequences [num_rows, time / num_rows, …]; the remainder
  // is dropped. Throws DataError for a series that is too short.
  static at::Tensor rows_of(const at::Tensor& series, std::int64_t num_rows);
  // Returns a loader of the batches in their order.
  static std::shared_ptr<DataLoader> loader(std::vector<at::Tensor> sequences,
                                            SequenceWindowsOptions options);

  std::int64_t num_windows() const noexcept;  // of a sequence
  std::int64_t size() const override;
  // Throws DataError unless the samples are one window of neighbouring sequences, for example for a loader
  // that shuffles or has another batch size.
  void gather(const at::Tensor& indices, Batch& batch) const override;

 private:
  std::vector<at::Tensor> sequences_;
  SequenceWindowsOptions options_;
};

}  // namespace kindling
