#pragma once

#include <memory>

#include "kindling/training/trainer_options.h"
#include "training/trainer_info.h"

namespace kindling {

// What a trainer of these options works on. Says in the app log where it has fewer cards than it was asked
// for; throws DeviceError where it must have them.
std::shared_ptr<TrainerInfo> make_info(const TrainerOptions& options);

}  // namespace kindling
