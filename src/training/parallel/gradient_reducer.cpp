#include "training/parallel/gradient_reducer.h"

#include <ATen/ops/from_blob.h>

#include <utility>

namespace kindling {
namespace {

struct NoWork : ProcessGroup::Work {
  void wait() override {}
};

}  // namespace

std::unique_ptr<ProcessGroup::Work> LoneGroup::start_all_reduce(const at::Tensor&) {
  return std::make_unique<NoWork>();
}

std::unique_ptr<ProcessGroup::Work> LoneGroup::start_broadcast(const at::Tensor&, std::int64_t) {
  return std::make_unique<NoWork>();
}

GradientReducer::GradientReducer(ProcessGroup& group, StopConsensus& stop, const TrainState& state,
                                 bool in_tree)
    : group_(group), stop_(stop), state_(state), in_tree_(in_tree) {}

// Abandons a running vote: the other ranks may already be in a different call.
GradientReducer::~GradientReducer() = default;

void GradientReducer::renew(std::unique_ptr<GradientPlan>& plan, const Optimizer& optimizer) const {
  if (plan && plan->fits(optimizer, state_.progress.epoch)) return;
  plan.reset();  // before the next plan registers hooks on the same parameters
  plan = std::make_unique<GradientPlan>(optimizer, *state_.model, state_.progress.epoch, in_tree_);
}

void GradientReducer::send_while_ready(const Optimizer& optimizer, std::unique_ptr<GradientPlan>& plan,
                                       GradientShare share) {
  renew(plan, optimizer);
  if (!plan->is_watched()) plan->watch();
  plan->begin_sending(group_, share);
}

at::Tensor GradientReducer::reduce(Optimizer& optimizer, std::unique_ptr<GradientPlan>& plan,
                                   GradientShare share, std::span<const at::Tensor> losses,
                                   const std::optional<StepLoss>& loss_sum) {
  renew(plan, optimizer);
  plan->send_all(group_, share, losses, loss_sum, stop_.votes());
  if (!optimizer.parameters().front().is_cpu()) vote();
  const at::Tensor not_finite = plan->receive(stop_);
  is_empty_ = plan->is_empty();
  mean_loss_ = plan->take_mean_loss();
  group_.broadcast(plan->other_buffers());
  return not_finite;
}

// On a GPU the host does not read the sums, so votes are reduced separately and take effect one step later.
void GradientReducer::vote() {
  if (const auto former = std::exchange(vote_, nullptr)) {
    former->wait();
    stop_.count(votes_);
  }
  votes_ = stop_.votes();
  vote_ = group_.start_all_reduce(
      at::from_blob(votes_.data(), {static_cast<std::int64_t>(StopConsensus::kNumVotes)}, at::kFloat));
}

}  // namespace kindling
