#include "training/inspect/operator_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "kindling/base/error.h"

namespace kindling {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

// Values of libkineto::ActivityType, whose header is not installed: an operator on the host, and a named span
// of the step on the GPU.
constexpr std::uint8_t kOperator = 0, kGpuAnnotation = 2;

std::atomic<bool> is_taken{false};  // Kineto supports one trace per process

ProfilerConfig trace_config() { return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/true); }

std::set<ActivityType> activities_of(Device device) {
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  return activities;
}

// Kineto does not report when it could not write its file.
void require_whole(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  char last = 0;
  if (std::filesystem::is_regular_file(file) && stream && stream.tellg() > 0)
    stream.seekg(-1, std::ios::end).get(last);
  if (last != '}')
    throw Error({.place = file.string(),
                 .found = "the trace could not be written",
                 .remedy = "check that the directory is writable and the disk has space"});
}

}  // namespace

OperatorTrace::~OperatorTrace() {
  try {
    cancel();
  } catch (const std::exception&) {  // the trace is discarded anyway
  }
}

bool OperatorTrace::prepare() {
  if (torch::profiler::impl::profilerEnabled() || is_taken.exchange(true)) return false;
  phase_ = Phase::prepared;
  kineto::prepareProfiler(trace_config(), activities_of(device_));
  return true;
}

void OperatorTrace::start() {
  kineto::enableProfiler(trace_config(), activities_of(device_));
  phase_ = Phase::running;
}

void OperatorTrace::cancel() {
  if (phase_ == Phase::idle) return;
  if (phase_ == Phase::prepared) start();  // a prepared trace can only be stopped after a start
  phase_ = Phase::idle;
  kineto::disableProfiler();
  is_taken = false;
}

std::vector<TracedCall> OperatorTrace::finish(const std::filesystem::path& file) {
  phase_ = Phase::idle;
  const auto result = kineto::disableProfiler();
  is_taken = false;
  std::error_code ignored;  // errors are found below
  std::filesystem::remove(file, ignored);
  result->save(file.string());
  require_whole(file);
  std::vector<TracedCall> calls;
  for (const kineto::KinetoEvent& event : result->events()) {
    const bool is_on_card = event.deviceType() != c10::DeviceType::CPU;
    if (is_on_card ? event.activityType() == kGpuAnnotation : event.activityType() != kOperator) continue;
    calls.push_back({.name = event.name(),
                     .thread = event.startThreadId(),
                     .start_ns = static_cast<std::int64_t>(event.startNs()),
                     .duration_ns = static_cast<std::int64_t>(event.durationNs()),
                     .is_on_card = is_on_card});
  }
  return calls;
}

}  // namespace kindling
