#pragma once

#include <filesystem>
#include <vector>

#include "kindling/device/device.h"
#include "training/inspect/operator_table.h"

namespace kindling {

// A trace of the operators that LibTorch runs for this thread (Kineto), backward on other threads included.
// One at a time in a process.
class OperatorTrace {
 public:
  explicit OperatorTrace(Device device) : device_(device) {}
  ~OperatorTrace();  // what has been traced is lost
  OperatorTrace(const OperatorTrace&) = delete;
  OperatorTrace& operator=(const OperatorTrace&) = delete;

  // Gets ready, which takes its time; false: another profiler is at work.
  bool prepare();
  void start();
  bool is_running() const noexcept { return phase_ == Phase::running; }
  // Ends it and writes it as Chrome's Trace Event Format. Returns the calls of operators. Throws Error that
  // names the file.
  std::vector<TracedCall> finish(const std::filesystem::path& file);

 private:
  enum class Phase { idle, prepared, running };
  void cancel();

  Device device_;
  Phase phase_ = Phase::idle;
};

}  // namespace kindling
