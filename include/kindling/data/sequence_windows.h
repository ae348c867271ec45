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
  std::int64_t num_steps = 35;  // of a window
};

// Long sequences, window by window, for truncated back-propagation through time: row r of a batch goes on
// where row r of the batch before has ended (the textbook's sequential partitioning), so that a CarriedState
// fits. The last window of a sequence may be shorter. After the windows of the first batch_size sequences
// come those of the next ones; then the state has to begin anew: CarriedStateOptions{.reset_every_n_batches =
// num_windows()}.
class KINDLING_API SequenceWindows : public Dataset {
 public:
  // Tensors [sequences, time, …], such as tokens and the tokens behind them. Throws DataError for others, and
  // when the batch size does not divide the number of sequences.
  SequenceWindows(std::vector<at::Tensor> sequences, SequenceWindowsOptions options);

  // One long series [time, …] as `num_rows` sequences [num_rows, time / num_rows, …]; what is left over at
  // its end is left out. Throws DataError for a series that is shorter.
  static at::Tensor rows_of(const at::Tensor& series, std::int64_t num_rows);
  // The batches in their order.
  static std::shared_ptr<DataLoader> loader(std::vector<at::Tensor> sequences,
                                            SequenceWindowsOptions options);

  std::int64_t num_windows() const noexcept;  // of a sequence
  std::int64_t size() const override;
  // Throws DataError for other samples than those of one window of neighbouring sequences: a loader that
  // shuffles, or has another batch size.
  void gather(const at::Tensor& indices, Batch& batch) const override;

 private:
  std::vector<at::Tensor> sequences_;
  SequenceWindowsOptions options_;
};

}  // namespace kindling
