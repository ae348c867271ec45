#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kindling/base/export.h"

namespace kindling {

// Mean and standard deviation of each channel of samples, in float64 and in one pass, a part of the samples
// after the other (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979).
class KINDLING_API ChannelStatistics {
 public:
  // `skips_nan`: NaN is a missing value, which does not count.
  explicit ChannelStatistics(std::int64_t num_channels, bool skips_nan = false);

  // Adds samples [n, channels, …] of any dtype, n > 0; with a single channel, of any shape.
  void add(const at::Tensor& samples);

  // float64 [channels] on the CPU; NaN for a channel without a number.
  at::Tensor mean() const;
  // With n in the denominator; 1 for a constant channel.
  at::Tensor deviation() const;
  // Returns the first channel with an infinite number, or NaN that counts; or without any number.
  std::optional<std::int64_t> wrong_channel() const;

 private:
  std::int64_t num_channels_;
  bool skips_nan_;
  at::Tensor count_, mean_, squares_, smallest_, largest_;  // squares: of the differences from the mean
};

}  // namespace kindling
