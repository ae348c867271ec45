#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "data/transforms/device_constant.h"
#include "kindling/data/input_transform.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

// Replaces missing values, scales numbers and encodes categories; see TableData. Uses only operators that
// .pt2 and ONNX programs have. Also tests include this header.
class TableTransform : public InputTransform {
 public:
  // The statistics are zeros and ones until fit() or until they are loaded.
  explicit TableTransform(TableSchema schema);

  // Computes the statistics of raw inputs, float64 [rows, features] on the CPU, and the offsets of columns
  // that float32 would round too coarsely. `missing` and `normalize` are options of TableData. `place` names
  // the file. Throws DataError for a column of numbers without a value.
  void fit(const at::Tensor& raw, const std::string& missing, bool normalize, const std::string& place);

  // Computes in the dtype of the rows, except for a transform of version 1, which rounds them to float32
  // first. Returns float32. Throws DataError for rows of 32 bits or less if a column has an offset.
  at::Tensor forward(const at::Tensor& raw) override;
  std::string description() const override { return schema_.text(); }
  bool adopt(const std::string& description) override;
  std::optional<at::ScalarType> program_input_type() const override {
    return schema_.has_offsets() ? at::kDouble : at::kFloat;
  }
  const TableSchema& schema() const noexcept { return schema_; }
  // Moves the buffers to a device unless they are there.
  void follow(const at::Tensor& raw);

 private:
  void take_offsets();
  [[noreturn]] void refuse_rounded(const at::Tensor& raw) const;

  TableSchema schema_;
  std::unique_ptr<DeviceConstant> offset_{};  // double [features], 0 without an offset; null: there is none
  // The floating-point buffers are double, or float for version 1. Fill values and means are those after the
  // subtraction of the offsets. These are in the schema, which decides the dtype of an exported program's
  // rows.
  at::Tensor fill_;         // [features]: instead of missing values
  at::Tensor numbers_;      // int64: indices of the features that are numbers
  at::Tensor mean_, std_;   // of these
  at::Tensor code_column_;  // int64, one per category: the index of its feature
  at::Tensor code_;         // float: its code
};

}  // namespace kindling
