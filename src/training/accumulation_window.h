#pragma once

#include <algorithm>
#include <cstdint>

namespace kindling {

// The weights of the batches of one optimizer step. Its gradient is that of the mean over all their samples,
// however the samples are spread over the batches.
class AccumulationWindow {
 public:
  // `num_batches`: of a full window.
  explicit AccumulationWindow(std::int64_t num_batches) : num_batches_(num_batches) {}

  void begin() { samples_ = expected_ = 0; }
  // The factor of the mean gradient of the next batch, as if the others were to be as large as the first one
  // and the window full.
  double add(std::int64_t num_samples) {
    const auto samples = static_cast<double>(std::max<std::int64_t>(num_samples, 1));
    if (samples_ == 0) expected_ = samples * static_cast<double>(num_batches_);
    samples_ += samples;
    return samples / expected_;
  }
  // The factor that the sum of the gradients still lacks: 1 when it was so.
  double rest() const { return expected_ / samples_; }

 private:
  std::int64_t num_batches_;
  double samples_ = 0, expected_ = 0;
};

}  // namespace kindling
