#pragma once

#include <ATen/Context.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// How LibTorch multiplies float32 matrices while this lives, in the words of set_float32_matmul_precision of
// Python: "highest", "high", "medium"; nothing: as the process does. For the whole process; what was set
// before comes back with the last one.
class KINDLING_API Float32Products {
 public:
  explicit Float32Products(const std::optional<std::string>& precision);
  ~Float32Products();
  Float32Products(const Float32Products&) = delete;
  Float32Products& operator=(const Float32Products&) = delete;

 private:
  std::optional<std::uint64_t> ticket_;
};

// The word that holds now; "mixed" where LibTorch's settings of single backends say what no word does.
KINDLING_API std::string float32_matmul_precision();

// The numbers that float32 matrices may be rounded to in products on such a device; IEEE, NONE: to none.
KINDLING_API at::Float32Precision float32_products_on(c10::DeviceType device);
KINDLING_API bool shortens_float32_products(c10::DeviceType device);

}  // namespace kindling
