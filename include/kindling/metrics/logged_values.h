#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kindling {

// Names and numbers, in the order to be shown.
using NamedValues = std::vector<std::pair<std::string, double>>;

// How a value is logged.
struct ValueOptions {
  std::optional<double> weight{};  // in the mean over the epoch; absent: the samples of the batch
};

// What the host knows of a row.
struct RowTag {
  std::int64_t global_step = 0;  // from 1
  std::int64_t batch = 0;        // of the epoch, from 0
  double lr = 0;
  double weight = 1;  // in means: the samples of the batch
};

// What the mean or the metric of a name comes from: the sum of weight·value over all rows (of a metric: its
// sums), and the weight. Logs of several processes are added up so.
struct NamedTotal {
  std::string name;
  std::vector<double> sums;
  double weight = 0;
};

}  // namespace kindling
