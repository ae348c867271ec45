#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kindling/data/sampler.h"

namespace kindling {

// Returns a sampler that draws training samples with replacement, in proportion to their weights: float64
// [samples] on the CPU, finite and at least 0. Throws DataError if all are 0, with the place of the weights
// ("w.csv, column 'w'") and what the samples are called ("rows").
std::shared_ptr<const Sampler> weighted_training(const at::Tensor& weights, std::int64_t seed,
                                                 const std::string& place, const std::string& samples);

}  // namespace kindling
