#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"
#include "kindling/data/input_transform.h"

namespace kindling {

// Scales the channels of samples, their first dimension, to mean 0 and standard deviation 1: (x - mean) /
// std, computed in float64 and rounded to float32. Uses only operators that .pt2 and ONNX programs have.
class KINDLING_API ChannelScale final : public InputTransform {
 public:
  // `num_channels`: 1 for one mean and one deviation of all numbers. The statistics are those of an identity
  // until fit() or until they are loaded. `fill`: takes the place of NaN, missing values, after the scaling;
  // these do not count in the statistics. Absent: NaN stays.
  explicit ChannelScale(std::int64_t num_channels, std::optional<double> fill = std::nullopt);
  // Takes a description of a saved transform. Throws CheckpointError for another text.
  static std::shared_ptr<ChannelScale> from_description(const std::string& description);

  // Computes the statistics of rows of a data set, of the first tensor of its batches [rows, channels, …], in
  // float64 and in one pass, a part of the rows after the other; the deviation has n in the denominator and
  // is 1 for a constant channel. `place` names the rows. Throws DataError for values that are not finite.
  void fit(const Dataset& samples, const std::vector<std::int64_t>& rows, const std::string& place);

  at::Tensor forward(const at::Tensor& raw) override;
  // The same without filling in missing values, for targets.
  at::Tensor scaled(const at::Tensor& raw) const;
  // Undoes scaled(), for scaled values of any floating-point type; returns float32.
  at::Tensor inverse(const at::Tensor& scaled) const;
  std::string description() const override;
  // Throws CheckpointError that names what differs.
  bool adopt(const std::string& description) override;
  // Moves the statistics to the device of the batches unless they are there.
  void follow(const at::Tensor& raw);

  const at::Tensor& mean() const noexcept { return mean_; }
  const at::Tensor& deviation() const noexcept { return std_; }

 private:
  at::Tensor like(const at::Tensor& statistics, const at::Tensor& values) const;

  at::Tensor mean_, std_;  // float64 [channels]
  std::optional<double> fill_;
};

// Returns the values with `fill` in place of NaN. Integers have none.
at::Tensor with_missing_filled(const at::Tensor& values, double fill);

}  // namespace kindling
