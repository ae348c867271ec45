#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kindling {

// Names of logged values and their means.
using Metrics = std::map<std::string, double>;

// Why a fit ended.
enum class FitStatus {
  finished,  // max_epochs or max_steps reached
  stopped,   // request_stop()
};

// What a fit came to.
struct FitResult {
  FitStatus status = FitStatus::finished;
  Metrics metrics{};             // the values of the last epoch record
  std::int64_t num_epochs = 0;   // begun
  std::int64_t global_step = 0;  // optimizer steps done
};

}  // namespace kindling
