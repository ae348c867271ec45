#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kindling/distributed/process_group.h"
#include "kindling/training/stop_token.h"

namespace kindling {

// Decides when a run stops early. A single process stops when its token says so. With several ranks, each
// rank only votes, and the votes travel with the gradients of every step: all ranks stop after the step in
// which one of them has voted to. Requests to save and to stop early travel in the same way.
class StopConsensus {
 public:
  // `group` outlives it; nullptr: a single process.
  StopConsensus(StopToken token, ProcessGroup* group) : token_(std::move(token)), group_(group) {}

  void request_stop(FitReason reason) const noexcept { token_.request_stop(reason); }
  bool stop_requested() const noexcept { return reason() != FitReason::finished; }
  FitReason reason() const noexcept { return group_ != nullptr ? agreed_ : token_.reason(); }
  const StopToken& token() const noexcept { return token_; }
  // Returns the token that a loop may check between two votes; nullptr with several ranks.
  const StopToken* immediate() const noexcept { return group_ != nullptr ? nullptr : &token_; }
  void reset() noexcept;

  // What a rank requests besides a stop; asked for each vote.
  struct Requests {
    std::function<bool()> save, early_stop;  // an early stop may have to wait, see FitLoop
  };
  void watch(Requests requests) { requests_ = std::move(requests); }
  // Whether any rank has requested a save since the last call: the same on all ranks.
  bool take_save_request() noexcept { return std::exchange(has_save_request_, false); }
  // Whether any rank had requested an early stop at the last vote: the same on all ranks.
  bool is_early_stop_requested() const {
    return group_ != nullptr ? wants_early_stop_ : requests_.early_stop();
  }
  // Sets what all ranks know, such as from a checkpoint.
  void set_early_stop_requested(bool is_requested) noexcept { wants_early_stop_ = is_requested; }
  // Stops at once, without a vote; on all ranks together.
  void stop_early() noexcept;

  // One number per reason, 1 for this rank's, and one for each request.
  static constexpr std::size_t kNumReasons = static_cast<std::size_t>(FitReason::time) + 1,
                               kSave = kNumReasons, kEarlyStop = kSave + 1, kNumVotes = kEarlyStop + 1;
  using Votes = std::array<float, kNumVotes>;
  Votes votes() const;
  // Takes the sums of all votes, which are the same on all ranks.
  void count(std::span<const float> sums) noexcept;
  // Holds a vote by itself. Collective: waits for all ranks.
  void vote_now();

 private:
  StopToken token_;
  ProcessGroup* group_;
  FitReason agreed_ = FitReason::finished;
  Requests requests_;
  bool has_save_request_ = false, wants_early_stop_ = false;
};

// TrainerOptions::max_time: how long a run may take, the parts before its stops included.
class TimeLimit {
 public:
  // "days:hours:minutes:seconds", empty for no limit; throws ConfigError.
  explicit TimeLimit(const std::string& text);

  bool is_set() const noexcept { return limit_.has_value(); }
  // Starts the clock; `spent_s`: before now.
  void start(double spent_s = 0);
  bool is_over() const { return limit_ && spent_s() >= *limit_; }
  double spent_s() const;

 private:
  std::optional<double> limit_;  // seconds
  double spent_before_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kindling
