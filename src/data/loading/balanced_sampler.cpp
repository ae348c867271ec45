#include "data/loading/balanced_sampler.h"

#include <utility>

#include "kindling/base/error.h"

namespace kindling {

std::shared_ptr<const Sampler> balanced_sampler(const at::Tensor& labels, std::int64_t seed) {
  try {
    return std::make_shared<WeightedSampler>(balanced_sample_weights(labels), seed);
  } catch (const DataError& error) {
    ErrorParts parts = error.parts();
    parts.place = "data.sampler = \"balanced\": " + parts.place;
    parts.remedy = "omit data.sampler: only classes can be balanced";
    throw ConfigError(std::move(parts));
  }
}

}  // namespace kindling
