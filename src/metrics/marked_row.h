#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kindling/metrics/epoch_log.h"

namespace kindling {

// What has been marked in the row of a log that is being made, to be marked in other rows with other tensors.
class MarkedRow {
 public:
  MarkedRow() = default;
  // Without what `earlier` has found there and is still the same.
  explicit MarkedRow(const EpochLog& log, const MarkedRow& earlier = {});

  // One per value that is a tensor; those of metrics are flat.
  std::vector<at::Tensor> take_tensors();
  void mark_in(EpochLog& log, std::span<const at::Tensor> tensors) const;
  // The tensors aside.
  friend bool operator==(const MarkedRow& one, const MarkedRow& other);

 private:
  struct Value {
    std::string name;
    EpochLog::Kind kind;
    std::shared_ptr<const Metric> metric;
    ValueOptions options;
    at::Tensor tensor;
    bool is_number;
    double number;
    bool is_same_but_tensor(const Value& other) const;
  };
  std::vector<Value> values_;
};

}  // namespace kindling
