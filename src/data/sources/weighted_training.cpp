#include "data/sources/weighted_training.h"

#include "kindling/base/error.h"

namespace kindling {

std::shared_ptr<const Sampler> weighted_training(const at::Tensor& weights, std::int64_t seed,
                                                 const std::string& place, const std::string& samples) {
  if (weights.numel() > 0 && weights.max().item<double>() == 0)
    throw DataError({.place = place,
                     .found = "all training " + samples + " have the weight 0",
                     .wanted = "at least one with a larger weight"});
  return std::make_shared<WeightedSampler>(weights, seed);
}

}  // namespace kindling
