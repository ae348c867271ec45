#pragma once

#include <algorithm>
#include <cstdint>

#include "kindling/tensors/batch.h"

namespace kindling {

// The weights of the batches of one optimizer step. Its gradient is that of the mean over all their samples,
// however the samples are spread over the batches.
class AccumulationWindow {
 public:
  // `num_batches`: of a full window.
  explicit AccumulationWindow(std::int64_t num_batches) : num_batches_(num_batches) {}

  void begin() { samples_ = expected_ = 0; }
  // The factor of the mean gradient of the next batch, as if the others were to be as large as the first one
  // and the window full. 0 for a batch that counts nothing.
  double add(const Batch& batch) {
    const auto size = static_cast<double>(std::max<std::int64_t>(batch.num_samples(), 1));
    if (expected_ == 0) expected_ = size * static_cast<double>(num_batches_);
    const double samples = batch.counts() ? size : 0;
    samples_ += samples;
    return samples / expected_;
  }
  // The factor that the sum of the gradients still lacks: 1 when it was so.
  double rest() const { return expected_ / samples_; }
  // Times the sum of the gradients, that is the sum over all samples.
  double expected() const { return expected_; }
  double num_samples() const { return samples_; }

 private:
  std::int64_t num_batches_;
  double samples_ = 0, expected_ = 0;
};

}  // namespace kindling
