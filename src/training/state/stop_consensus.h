#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "kindling/distributed/process_group.h"
#include "kindling/training/stop_token.h"

namespace kindling {

// The end of a training before its time. A process alone stops when its token says so. Of several processes
// each only wishes it, by a vote that travels with the gradients of every step, and all of them stop behind
// the step in which one has voted so. A save that one of them wishes travels in the same way.
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

  // Is asked for each vote of several processes: whether this one wishes a save.
  void ask_for_saves(std::function<bool()> wishes_save) { wishes_save_ = std::move(wishes_save); }
  // Whether one has wished it since the last call: the same in all processes.
  bool take_save() noexcept { return std::exchange(has_heard_of_save_, false); }

  // One number for each reason, 1 for this process's, and one for a save.
  static constexpr std::size_t kNumReasons = static_cast<std::size_t>(FitReason::time) + 1,
                               kNumVotes = kNumReasons + 1;
  using Votes = std::array<float, kNumVotes>;
  Votes votes() const;
  // The sums of all votes: the same in all processes.
  void hear(std::span<const float> sums) noexcept;
  // A vote of its own, for which all processes wait.
  void ask_all();

 private:
  StopToken token_;
  ProcessGroup* group_;
  FitReason agreed_ = FitReason::finished;
  std::function<bool()> wishes_save_;
  bool has_heard_of_save_ = false;
};

}  // namespace kindling
