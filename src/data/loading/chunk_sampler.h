#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/loading/array_source.h"
#include "kindling/data/sampler.h"

namespace kindling {

// Which samples an epoch reads together.
struct ChunkOrder {
  std::int64_t num_mixed = 1;  // chunks whose samples are mixed
  std::int64_t seed = 0;
  std::string order_seed = "sum";  // see DataLoaderOptions
};

// Returns a sampler of the samples `chosen` of an array (nullptr: all of them): its chunks come in random
// order, and the samples of `num_mixed` chunks at a time are mixed. Each sample comes once. Throws DataError
// unless the array is stored in chunks.
std::shared_ptr<const Sampler> chunk_sampler(const SourceArray& array,
                                             const std::vector<std::int64_t>* chosen,
                                             const ChunkOrder& order);

}  // namespace kindling
