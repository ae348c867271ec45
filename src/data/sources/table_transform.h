#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kindling/data/input_transform.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

// Replaces missing values, scales numbers and encodes categories; see TableData. Uses only operators that
// .pt2 and ONNX programs have. Also tests include this header.
class TableTransform : public InputTransform {
 public:
  // The statistics are zeros and ones until fit() or until they are loaded.
  explicit TableTransform(TableSchema schema);

  // Computes the statistics of raw inputs, float64 [rows, features] on the CPU. `missing` and `normalize` are
  // options of TableData. `place` names the file. Throws DataError for a column of numbers without a value.
  void fit(const at::Tensor& raw, const std::string& missing, bool normalize, const std::string& place);

  at::Tensor forward(const at::Tensor& raw) override;
  std::string description() const override { return schema_.text(); }
  const TableSchema& schema() const noexcept { return schema_; }
  // Moves the buffers to a device unless they are there.
  void follow(const at::Tensor& raw);

 private:
  const TableSchema schema_;
  at::Tensor fill_;         // float [features]: instead of missing values
  at::Tensor numbers_;      // int64: indices of the features that are numbers
  at::Tensor mean_, std_;   // float, of these
  at::Tensor code_column_;  // int64, one per category: the index of its feature
  at::Tensor code_;         // float: its code
};

}  // namespace kindling
