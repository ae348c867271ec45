#pragma once

#include <string>
#include <vector>

#include "cli/config/run_config.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/fit_result.h"

namespace kindling {

// Returns why the model of a finished fit on a table is probably useless, a line each: a validation loss that
// is not finite, worse predictions than the mean of the validation targets or their most frequent class, or
// no validation rows. Draws no random numbers.
std::vector<std::string> doubts_about(const FitResult& result, const ConfigTables& config,
                                      const Module& model, DataModule& data);

}  // namespace kindling
