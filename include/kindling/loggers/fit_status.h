#pragma once

namespace kindling {

// How a fit ended.
enum class FitStatus {
  finished,  // max_epochs or max_steps reached
  stopped,   // a stop was requested
  diverged,  // the training loss or a gradient was not finite
  failed,    // an exception was thrown: only callbacks and loggers see this status
};

}  // namespace kindling
