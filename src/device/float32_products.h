#pragma once

#include <ATen/Context.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// Sets the precision of LibTorch's float32 matmuls for its lifetime, with the names of Python's
// set_float32_matmul_precision: "highest", "high", "medium"; absent: unchanged. Applies to the whole process;
// the last object restores the previous setting.
class KINDLING_API Float32Products {
 public:
  explicit Float32Products(const std::optional<std::string>& precision);
  ~Float32Products();
  Float32Products(const Float32Products&) = delete;
  Float32Products& operator=(const Float32Products&) = delete;

 private:
  std::optional<std::uint64_t> ticket_;
};

// Returns the current name; "mixed" if LibTorch's settings of single backends match no name.
KINDLING_API std::string float32_matmul_precision();

// Returns the type that float32 matrices may be rounded to in matmuls on such a device; IEEE, NONE: no
// rounding.
KINDLING_API at::Float32Precision float32_products_on(c10::DeviceType device);
KINDLING_API bool shortens_float32_products(c10::DeviceType device);

}  // namespace kindling
