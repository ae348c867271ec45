#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"

namespace kindling {

// Returns the class of each training sample, int64 [labels] on the CPU in the order of the data; the labels
// of a sequence all count. Gathers the samples only if the labels are not in memory. Throws DataError for
// labels that are not integers.
KINDLING_API at::Tensor training_labels(DataModule& data);

// Returns a function that returns some of the numbers that the training samples are to predict at each call,
// on the CPU in the order of the data, and an undefined tensor after the last ones. All of them at once if
// they are in memory. `data` must outlive it. Throws DataError for data without an end, and for labels that
// are not floating-point numbers.
KINDLING_API std::function<at::Tensor()> training_target_parts(DataModule& data);

}  // namespace kindling
