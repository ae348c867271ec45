#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kindling/metrics/epoch_log.h"

namespace kindling {

// The marked values of a log's current row, which can be marked again in other rows with other tensors.
class MarkedRow {
 public:
  MarkedRow() = default;
  // Skips values that `earlier` also contains unchanged.
  explicit MarkedRow(const EpochLog& log, const MarkedRow& earlier = {});

  // Returns one per value that is a tensor; those of metrics are flat.
  std::vector<at::Tensor> take_tensors();
  void mark_in(EpochLog& log, std::span<const at::Tensor> tensors) const;
  // Ignores the tensors.
  friend bool operator==(const MarkedRow& one, const MarkedRow& other);

 private:
  struct Value {
    std::string name;
    EpochLog::Kind kind;
    std::shared_ptr<const Metric> metric;
    ValueOptions options;
    std::string weight_in;  // the name of the internal column that has the weight; empty: none
    at::Tensor tensor;
    bool is_number;
    double number;
    bool is_same_but_tensor(const Value& other) const;
  };
  std::vector<Value> values_;
};

}  // namespace kindling
