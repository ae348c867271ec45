#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "measurements/measured_work.h"
#include "measurements/measurements.h"

namespace kindling {
namespace {

// Otherwise a call of a nanosecond would be repeated a million times.
constexpr std::int64_t kMaxCallsInARepeat = 1000;

double seconds_of(const std::vector<Device>& devices, const std::function<void()>& call, std::int64_t calls) {
  wait_for(devices);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) call();
  wait_for(devices);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Timing timing_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t middle = seconds.size() / 2;
  const double median =
      seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  return {.median_s = median,
          .min_s = seconds.front(),
          .max_s = seconds.back(),
          .repeats = static_cast<std::int64_t>(seconds.size())};
}

void wait_for(const std::vector<Device>& devices) {
  for (const Device device : devices)
    if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

Timing time_calls(const std::vector<Device>& devices, const std::function<void()>& call,
                  const TimingOptions& options) {
  double one_call = 0;
  for (std::int64_t i = 0; i < options.warm_up; ++i) one_call = seconds_of(devices, call, 1);
  const double wanted = one_call > 0 ? std::ceil(options.min_seconds / one_call) : 1;
  const auto calls = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::min<double>(wanted, kMaxCallsInARepeat)), 1, kMaxCallsInARepeat);
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < options.repeats; ++i)
    seconds.push_back(seconds_of(devices, call, calls) / static_cast<double>(calls));
  return timing_of(std::move(seconds));
}

at::Tensor noise(const std::vector<std::int64_t>& shape, at::TensorOptions options, std::uint64_t seed) {
  const Device device = options.device();
  at::Generator generator =
      device.is_cpu()
          ? at::detail::createCPUGenerator()
          : at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return at::empty(shape, options).uniform_(-1, 1, generator);
}

}  // namespace kindling
