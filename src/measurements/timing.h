#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// Seconds of one call: the median of some repeats and how far they lie apart.
struct Timing {
  double median_s = 0, min_s = 0, max_s = 0;
  std::int64_t repeats = 0;
};

// Of one or more repeats.
Timing timing_of(std::vector<double> seconds);

struct TimingOptions {
  std::int64_t warm_up = 2;  // calls that do not count; the last of them is measured for `min_seconds`
  std::int64_t repeats = 5;
  double min_seconds = 0;  // of a repeat: a shorter call is made several times in each
};

// Waits until a card has nothing left to do; nothing on the CPU.
void wait_for(const std::vector<Device>& devices);

// By the host's clock, started and stopped when the devices have nothing left to do.
Timing time_calls(const std::vector<Device>& devices, const std::function<void()>& call,
                  const TimingOptions& options);

}  // namespace kindling
