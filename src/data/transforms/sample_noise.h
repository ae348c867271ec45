#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace kindling {

// The random numbers of a sample that sample_noise() needs.
inline constexpr std::int64_t kNumbersOfNoise = 2;

// Returns numbers of the standard normal distribution, float32 of the shape of `values` [batch, …], on its
// device and without a wait. Those of a sample depend on its random numbers alone (Batch::random_numbers()),
// of which `numbers` [batch, kNumbersOfNoise] are the last: they number its stream of a hash function, whose
// bits become normal numbers by Box and Muller's method.
at::Tensor sample_noise(const at::Tensor& values, const at::Tensor& numbers);

}  // namespace kindling
