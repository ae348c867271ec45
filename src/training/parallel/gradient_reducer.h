#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"
#include "training/parallel/gradient_plan.h"
#include "training/state/stop_consensus.h"
#include "training/state/train_state.h"

namespace kindling {

// A group of a single rank.
class LoneGroup : public ProcessGroup {
 public:
  LoneGroup() : ProcessGroup(0, 1, 0, {}) {}

  std::unique_ptr<Work> start_all_reduce(const at::Tensor&) override;
  std::unique_ptr<Work> start_broadcast(const at::Tensor&, std::int64_t) override;
  void exchange(const at::Tensor&, const at::Tensor&, std::int64_t) override {}
  void send(const at::Tensor&, std::int64_t) override {}
  void receive(const at::Tensor&, std::int64_t) override {}
  std::vector<std::string> all_gather(const std::string& bytes) override { return {bytes}; }
  void leave(const std::string&) noexcept override {}
};

// Reduces the gradients of all ranks to the mean over their samples, bit-identical on all ranks. Gradients
// are sent in buckets, the last layers first. Sent along with them are the number of samples, the sum of
// the losses, whether one was not finite, which parameters had a gradient, votes for a stop, and the buffers
// (running means) of rank 0, which all other ranks take.
class GradientReducer {
 public:
  // All arguments outlive it. With `in_tree`, sums do not depend on the number of ranks; see GradientShards.
  GradientReducer(ProcessGroup& group, StopConsensus& stop, const TrainState& state, bool in_tree);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Announces that the next backward is the last one before reduce(): gradients that are complete are sent
  // while it is running. `plan` is the optimizer's; it is created and renewed here.
  void send_while_ready(const Optimizer& optimizer, std::unique_ptr<GradientPlan>& plan, GradientShare share);
  // Returns a number on the parameters' device that is NaN if a loss of any rank was not finite, else 0.
  // `losses` are those of this rank's gradients. A parameter without a gradient on any rank stays without
  // one. Throws DistributedError, and ConfigError for sparse gradients.
  // `loss_sum`: the sum of the losses of this rank, times their weights, for the spike test. Either all steps
  // of a run have one, unless no label of the rank has counted, or none has.
  at::Tensor reduce(Optimizer& optimizer, std::unique_ptr<GradientPlan>& plan, GradientShare share,
                    std::span<const at::Tensor> losses, const std::optional<StepLoss>& loss_sum);
  // Returns the mean loss over the labels of all ranks in the latest reduce(), the same on all ranks. On a
  // device it is NaN if no label has counted.
  StepLoss take_mean_loss() { return std::exchange(mean_loss_, {}); }
  // Whether no label of any rank has counted in the latest reduce(), as far as the host knows.
  bool is_empty() const noexcept { return is_empty_; }

 private:
  void renew(std::unique_ptr<GradientPlan>& plan, const Optimizer& optimizer) const;
  void vote();

  ProcessGroup& group_;
  StopConsensus& stop_;
  const TrainState& state_;
  const bool in_tree_;
  bool is_empty_ = false;
  StepLoss mean_loss_;
  StopConsensus::Votes votes_{};              // being reduced
  std::unique_ptr<ProcessGroup::Work> vote_;  // on GPUs
};

}  // namespace kindling
