#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kindling/distributed/process_group.h"
#include "kindling/training/stop_token.h"

namespace kindling {

// The end of a training before its time. A process alone stops when its token says so. Of several processes
// each only wishes it, by a vote that travels with the gradients of every step, and all of them stop behind
// the step in which one has voted so.
class AgreedStop {
 public:
  // `group` outlives it; nullptr: this process alone.
  AgreedStop(StopToken token, ProcessGroup* group) : token_(std::move(token)), group_(group) {}

  void request_stop(FitReason reason) const noexcept { token_.request_stop(reason); }
  bool stop_requested() const noexcept { return reason() != FitReason::finished; }
  FitReason reason() const noexcept { return group_ != nullptr ? agreed_ : token_.reason(); }
  const StopToken& token() const noexcept { return token_; }
  // What a loop between two votes may heed: the token of a process alone.
  const StopToken* at_once() const noexcept { return group_ != nullptr ? nullptr : &token_; }
  void reset() noexcept;

  // One number for each reason, 1 for this process's.
  static constexpr std::size_t kNumVotes = static_cast<std::size_t>(FitReason::time) + 1;
  using Votes = std::array<float, kNumVotes>;
  Votes votes() const noexcept;
  // The sums of all votes: the same in all processes.
  void hear(std::span<const float> sums) noexcept;
  // A vote of its own, for which all processes wait.
  void ask_all();

 private:
  StopToken token_;
  ProcessGroup* group_;
  FitReason agreed_ = FitReason::finished;
};

}  // namespace kindling
