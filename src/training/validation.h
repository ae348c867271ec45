#pragma once

#include <optional>

#include "kindling/metrics/logged_values.h"
#include "training/fit_loop.h"

// The validations of a fit: one at the end of an epoch, others in its middle (val_check_interval).
namespace kindling {

// What the epoch's validation has found, when it has one; its training has ended. Nothing when a stop has
// ended it.
std::optional<NamedValues> validate_at_end(const FitParts& fit);

// After a step: its batches have come past a multiple of val_check_interval.
bool is_validation_due(const FitParts& fit);
// Does the one that is due, if any (Phase::validation), and tells of it; false when a stop has ended it.
bool validate_between(const FitParts& fit);

}  // namespace kindling
