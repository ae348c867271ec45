#pragma once

namespace kindling {

// The loop that a batch is for: training, validation (including the sanity check of fit), testing or
// prediction.
enum class Stage { train, val, test, predict };

}  // namespace kindling
