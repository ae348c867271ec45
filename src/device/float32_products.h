#pragma once

#include <ATen/Context.h>

#include "kindling/base/export.h"

namespace kindling {

// How LibTorch multiplies float32 matrices while this lives: in full float32, or with TF32 (inputs rounded to
// a mantissa of 10 bits) where the hardware has it. The setting is the process's; what it was comes back at
// the end.
class KINDLING_API Float32Products {
 public:
  enum class Precision { full, tf32 };

  explicit Float32Products(Precision precision);
  ~Float32Products();
  Float32Products(const Float32Products&) = delete;
  Float32Products& operator=(const Float32Products&) = delete;

 private:
  at::Float32MatmulPrecision before_;
  at::Float32Precision cuda_before_, onednn_before_;
};

}  // namespace kindling
