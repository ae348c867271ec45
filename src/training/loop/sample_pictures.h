#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_loader.h"

namespace kindling {

// Returns the samples at these positions of the loader's data set as pictures, see
// ValidationReport::worst_pictures; undefined without a loader. Reads the samples again.
KINDLING_API at::Tensor sample_pictures(const std::shared_ptr<DataLoader>& loader,
                                        const std::vector<std::int64_t>& samples);

}  // namespace kindling
