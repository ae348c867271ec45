#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "formats/arrays/row_source.h"

namespace kindling {

// The rows of a tensor, next to those that stay in files.
class TensorRows final : public RowSource {
 public:
  TensorRows(std::string place, const at::Tensor& values)
      : place_(std::move(place)),
        values_(values.contiguous()),
        row_bytes_(values_.nbytes() / static_cast<std::size_t>(std::max<std::int64_t>(1, values_.size(0)))) {}

  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
    const char* const rows = static_cast<const char*>(values_.const_data_ptr());
    for (std::int64_t i = 0; i < count; ++i, out += row_bytes_)
      std::memcpy(out, rows + static_cast<std::size_t>(numbers[i]) * row_bytes_, row_bytes_);
  }
  std::string place() const override { return place_; }
  std::shared_ptr<const RowSource> divided(std::size_t parts) const override {
    auto part = std::make_shared<TensorRows>(*this);
    part->row_bytes_ /= parts;
    return part;
  }

 private:
  std::string place_;
  at::Tensor values_;
  std::size_t row_bytes_;
};

}  // namespace kindling
