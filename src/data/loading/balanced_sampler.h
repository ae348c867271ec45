#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "kindling/data/sampler.h"

namespace kindling {

// Returns the sampler of data.sampler = "balanced" for `labels` [samples], integers from 0 on. Throws
// ConfigError, which names the key, for anything else.
std::shared_ptr<const Sampler> balanced_sampler(const at::Tensor& labels, std::int64_t seed);

}  // namespace kindling
