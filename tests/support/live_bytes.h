// Measures the memory of the tensors that a thread creates.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace kindling {

// Counts tensors in host memory that this thread has created since construction.
class LiveBytes {
 public:
  LiveBytes() : counts_(std::make_shared<Counts>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counts_) {}
  std::int64_t now() const { return counts_->now; }
  std::int64_t peak() const { return counts_->peak; }
  void forget_peak() { counts_->peak = counts_->now; }

 private:
  struct Counts : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
      now += size;  // negative for freed memory
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t now = 0, peak = 0;
  };
  std::shared_ptr<Counts> counts_;
  c10::DebugInfoGuard guard_;
};

}  // namespace kindling
