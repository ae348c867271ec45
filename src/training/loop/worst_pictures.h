#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/data/data_module.h"
#include "kindling/training/validation_report.h"

namespace kindling {

// Returns the pictures of validation samples, see ValidationReport::worst_pictures. Reads the samples again.
at::Tensor worst_pictures(DataModule& data, const std::vector<WorstPrediction>& worst);

}  // namespace kindling
