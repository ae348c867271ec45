#pragma once

#include <filesystem>
#include <vector>

#include "kindling/device/device.h"
#include "training/inspect/operator_table.h"

namespace kindling {

// A trace of the operators that LibTorch runs for this thread (Kineto), backward on other threads included.
// At most one per process.
class OperatorTrace {
 public:
  explicit OperatorTrace(Device device) : device_(device) {}
  ~OperatorTrace();  // discards the trace
  OperatorTrace(const OperatorTrace&) = delete;
  OperatorTrace& operator=(const OperatorTrace&) = delete;

  // Prepares the profiler, which takes a while. Returns false if another profiler is active.
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
