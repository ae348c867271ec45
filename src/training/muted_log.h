#pragma once

#include <utility>

#include "training/trainer_info.h"

namespace kindling {

// While it lives, what the model logs does not count.
class MutedLog {
 public:
  explicit MutedLog(TrainerInfo& info)
      : info_(info), scratch_(info.device(), /*capacity=*/1), former_(std::exchange(info.log, &scratch_)) {}
  ~MutedLog() { info_.log = former_; }
  MutedLog(const MutedLog&) = delete;
  MutedLog& operator=(const MutedLog&) = delete;

  const EpochLog& log() const noexcept { return scratch_; }

 private:
  TrainerInfo& info_;
  EpochLog scratch_;
  EpochLog* former_;
};

}  // namespace kindling
