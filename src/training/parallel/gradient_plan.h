#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"
#include "training/parallel/gradient_bucket.h"
#include "training/state/spike_detector.h"
#include "training/state/stop_consensus.h"

namespace kindling {

// The sum of the weights of losses: `number`, plus a number on the device if that one is defined.
struct TotalWeight {
  double number = 0;
  at::Tensor on_device{};

  bool is_known() const noexcept { return !on_device.defined(); }
  bool is_known_zero() const noexcept { return is_known() && number == 0; }
};

// The weight of a rank's gradients: `scale` times them is the sum over labels with this total weight.
struct GradientShare {
  double scale = 1;
  TotalWeight weight{.number = 1};
};

// How the gradients of an optimizer are reduced during an epoch: the buckets, and the values that are reduced
// along with the gradients.
class GradientPlan {
 public:
  GradientPlan(const Optimizer& optimizer, const torch::nn::Module& model, std::int64_t epoch, bool in_tree);
  ~GradientPlan();
  GradientPlan(const GradientPlan&) = delete;
  GradientPlan& operator=(const GradientPlan&) = delete;

  bool fits(const Optimizer& optimizer, std::int64_t epoch) const;
  // Registers hooks with autograd, which report from then on when a gradient is complete.
  void watch();
  bool is_watched() const noexcept { return is_watched_; }
  // Starts sending: full buckets are sent while the next backward is still running.
  void begin_sending(ProcessGroup& group, GradientShare share);
  // Sends all that has not been sent yet. On a GPU the ranks first tell each other which parameters have
  // gradients.
  void send_all(ProcessGroup& group, GradientShare share, std::span<const at::Tensor> losses,
                const std::optional<StepLoss>& loss_sum, const StopConsensus::Votes& votes);
  // Waits for the sums and stores them in parameters and buffers; see GradientReducer::reduce().
  at::Tensor receive(StopConsensus& stop);
  // Returns the sum of the losses over the sum of the weights in the latest step, of all ranks.
  StepLoss take_mean_loss() { return std::exchange(mean_loss_, {}); }
  // Whether no label of any rank has counted in the latest step, if the host knows.
  bool is_empty() const noexcept { return is_empty_; }
  // Buffers of rank 0 that are broadcast separately, because their dtype is too wide for the last bucket.
  const std::vector<at::Tensor>& other_buffers() const noexcept { return other_buffers_; }

 private:
  struct Place {
    std::size_t bucket, member;
  };
  class Ready;
  void note(std::size_t parameter);
  void take(std::size_t parameter, double scale);
  void send_full_ones();
  void write_more(GradientShare share, std::span<const at::Tensor> losses,
                  const std::optional<StepLoss>& loss_sum, const StopConsensus::Votes& votes);
  void write_buffers(bool are_those_of_all);
  void agree_on_use(ProcessGroup& group);
  void give_gradients();
  double number_at(std::int64_t index) const;  // of those after the gradients
  void give_buffers();
  at::Tensor more(std::int64_t begin, std::int64_t count) const {
    return buckets_.back().more().narrow(0, begin, count);
  }

  std::vector<at::Tensor> parameters_, buffers_, other_buffers_;
  std::vector<std::string> names_;
  std::vector<Place> places_;  // by parameter
  std::vector<GradientBucket> buckets_;
  std::vector<int> num_calls_;  // calls of the hook in this backward, by parameter
  std::string used_,
      used_by_any_;  // on a GPU: '1' for each parameter with a gradient on this rank, on any rank
  std::int64_t num_in_buffers_ = 0, at_buffers_ = 0, epoch_;
  bool in_tree_, is_host_ = true, is_watched_ = false, has_seen_one_ = false, comes_once_ = true;
  bool counts_calls_ = true;  // of a backward that begin_sending() has announced, and of the first one
  bool is_empty_ = false, is_wide_ = false;  // the numbers are float64
  ProcessGroup* sends_to_ = nullptr;         // set while a backward is running
  GradientShare share_;
  StepLoss mean_loss_;
  bool has_loss_ = false;
  // For the hooks, which may live longer; null after this object.
  const std::shared_ptr<GradientPlan*> self_ = std::make_shared<GradientPlan*>(this);
};

}  // namespace kindling
