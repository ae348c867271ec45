#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kindling/optim/optimizer.h"
#include "training/parallel/gradient_plan.h"
#include "training/state/stop_consensus.h"
#include "training/state/train_state.h"

namespace kindling {

// Makes the gradients of several processes one: the mean over the samples of all of them, the same bits
// everywhere. They travel in buckets, the last layers first; with them travel how many samples they are of,
// whether a loss was not finite, which parameters had a gradient, votes for a stop, and the buffers (running
// means) of process 0, which all others take.
class GradientReducer {
 public:
  // All outlive it. With `in_tree` sums do not hang on the number of processes; see GradientShards.
  GradientReducer(ProcessGroup& group, StopConsensus& stop, const TrainState& state, bool in_tree);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // The backward that comes now is the last one before reduce(): what is ready is sent while it goes on.
  // `plan` is the optimizer's, made and renewed here.
  void send_while_ready(const Optimizer& optimizer, std::unique_ptr<GradientPlan>& plan, GradientShare share);
  // `losses` are those of this process's gradients. Gives a number that is NaN where a loss of any process
  // was not finite, else 0, on the parameters' device. A parameter that no process has a gradient of stays
  // without one. Throws DistributedError, ConfigError for sparse gradients.
  at::Tensor reduce(Optimizer& optimizer, std::unique_ptr<GradientPlan>& plan, GradientShare share,
                    std::span<const at::Tensor> losses);

 private:
  void renew(std::unique_ptr<GradientPlan>& plan, const Optimizer& optimizer) const;
  void vote();

  ProcessGroup& group_;
  StopConsensus& stop_;
  const TrainState& state_;
  const bool in_tree_;
  StopConsensus::Votes votes_{};                 // on their way
  std::unique_ptr<ProcessGroup::Work> vote_;  // of a training on cards
};

}  // namespace kindling
