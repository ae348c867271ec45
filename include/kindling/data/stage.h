#pragma once

namespace kindling {

// The loop that a batch is for: training, validation (the sanity check of fit included), testing or
// predicting.
enum class Stage { train, val, test, predict };

}  // namespace kindling
