#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kindling {

// Names and numbers, in display order.
using NamedValues = std::vector<std::pair<std::string, double>>;

// How a value is logged.
struct ValueOptions {
  std::optional<double> weight{};  // in the mean over the epoch; absent: the number of samples in the batch
};

// A loss that is a mean, and what it is a mean over. Means over several batches are then the means over all
// of their labels, however the batches are cut.
struct WeightedLoss {
  at::Tensor loss;  // one element
  // One element, at least 0, on any device: the number of labels that count, or the sum of their weights.
  // With 0 the loss may be NaN, and does not count. Undefined: the number of samples in the batch.
  at::Tensor weight{};
};

// Tensors by name.
using NamedSamples = std::vector<std::pair<std::string, at::Tensor>>;

// What the host knows about a row.
struct RowTag {
  std::int64_t global_step = 0;  // from 1
  std::int64_t batch = 0;        // within the epoch, from 0
  double lr = 0;
  double weight = 1;  // in means: the number of samples in the batch
};

// The parts of a mean or a metric: the sum of weight·value over all rows (for a metric, its sums), and the
// weight. The logs of all ranks are added up in this form.
struct NamedTotal {
  std::string name;
  std::vector<double> sums;
  double weight = 0;
};

}  // namespace kindling
