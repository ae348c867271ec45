#pragma once

#include <ATen/Context.h>

#include <string>

#include "kindling/device/device.h"

namespace kindling {

// How LibTorch multiplies float32 matrices while this lives: in full float32, or with TF32 (inputs rounded to
// a mantissa of 10 bits) where the hardware has it. The setting is the process's; what it was comes back at
// the end.
class Float32Products {
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

// Whether float32 products are really made with TF32 when it is asked for: tells by a product of numbers that
// TF32 cannot hold.
bool has_tf32(Device device);

// The library that multiplies matrices on the device, with its version or setting where LibTorch tells:
// "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605; Intel(R) MKL-DNN v3.12.0",
// "Cublas".
std::string matrix_library(Device device);

}  // namespace kindling
