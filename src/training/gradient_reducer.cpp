#include "training/gradient_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DynamicCast.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kindling/base/error.h"

namespace kindling {
namespace {

// The first bucket is small, so that the first transfer begins early; each transfer has a price.
constexpr std::int64_t kFirstBucket_bytes = 1 << 20, kBucket_bytes = 25 << 20;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

bool travel_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

// Without item(), which a step must not call.
bool is_finite_on_host(const at::Tensor& loss) {
  const at::Tensor there = loss.is_cpu() ? loss : loss.cpu();
  return std::isfinite(c10::fetch_and_cast<double>(there.scalar_type(), there.const_data_ptr()));
}

[[noreturn]] void refuse_gradient(const std::string& parameter, const std::string& found,
                                  const std::string& remedy) {
  throw ConfigError({.place = "the gradient of '" + parameter + "'", .found = found, .remedy = remedy});
}

}  // namespace

// How the gradients of an optimizer travel.
class GradientReducer::Plan {
 public:
  Plan(const Optimizer& optimizer, const torch::nn::Module& model, bool in_tree);
  ~Plan();

  bool fits(const Optimizer& optimizer, std::int64_t epoch) const;
  void watch();
  void begin_sending(ProcessGroup& group, GradientShare share);
  void send_all(ProcessGroup& group, GradientShare share, std::span<const at::Tensor> losses,
                const AgreedStop::Votes& votes);
  at::Tensor receive(AgreedStop& stop);
  bool is_watched() const noexcept { return is_watched_; }
  const std::vector<at::Tensor>& other_buffers() const noexcept { return other_buffers_; }

 private:
  struct Place {
    std::size_t bucket, member;
  };
  class Ready;
  void note(std::size_t parameter);
  void take(std::size_t parameter, double scale);
  void send_full_ones();
  void write_more(GradientShare share, std::span<const at::Tensor> losses, const AgreedStop::Votes& votes);
  void write_buffers(bool are_those_of_all);
  void agree_on_use(ProcessGroup& group);
  void give_gradients();
  void give_buffers();
  at::Tensor more(std::int64_t begin, std::int64_t count) const {
    return buckets_.back().more().narrow(0, begin, count);
  }

  std::vector<at::Tensor> parameters_, buffers_, other_buffers_;  // others: too wide for the last bucket
  std::vector<std::string> names_;
  std::vector<Place> places_;  // of the parameters
  std::vector<GradientBucket> buckets_;
  std::vector<int> num_calls_;      // of autograd, in this backward
  std::string used_, used_by_any_;  // on a card: '1' for each parameter with a gradient, here and anywhere
  std::int64_t num_in_buffers_ = 0, at_buffers_ = 0, epoch_ = 0;
  bool in_tree_, is_host_ = true, is_watched_ = false, has_seen_one_ = false, comes_once_ = true;
  ProcessGroup* sends_to_ = nullptr;  // while a backward is under way
  GradientShare share_;
  friend class GradientReducer;
};

// Autograd calls it when the gradient of a parameter is complete for this backward.
class GradientReducer::Plan::Ready : public torch::autograd::PostAccumulateGradHook {
 public:
  Ready(Plan& plan, std::size_t parameter) : plan_(plan), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable&) override { plan_.note(parameter_); }

 private:
  Plan& plan_;
  std::size_t parameter_;
};

namespace {

// Running means and the like. Counts are the same everywhere, as each process makes the same steps.
std::vector<at::Tensor> floating_buffers(const torch::nn::Module& model) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : model.buffers())
    if (buffer.defined() && buffer.numel() > 0 && buffer.is_floating_point()) buffers.push_back(buffer);
  return buffers;
}

}  // namespace

GradientReducer::Plan::Plan(const Optimizer& optimizer, const torch::nn::Module& model, bool in_tree)
    : parameters_(optimizer.parameters()),
      names_(optimizer.names()),
      num_calls_(parameters_.size()),
      in_tree_(in_tree) {
  const at::Device device = parameters_.front().device();
  is_host_ = device.is_cpu();
  places_.resize(parameters_.size());
  const auto type = at::dtype(at::kFloat).device(device);
  for (const at::Tensor& buffer : floating_buffers(model)) {
    const bool loses_no_bit = buffer.scalar_type() == at::kFloat && buffer.device() == device;
    (loses_no_bit ? buffers_ : other_buffers_).push_back(buffer);
  }
  for (const at::Tensor& buffer : buffers_) num_in_buffers_ += buffer.numel();
  at_buffers_ = 2 + (is_host_ ? static_cast<std::int64_t>(AgreedStop::kNumVotes + parameters_.size()) : 0);
  std::vector<std::vector<std::size_t>> members;
  std::int64_t bytes = 0;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters_[i];
    const std::int64_t limit = members.size() == 1 ? kFirstBucket_bytes : kBucket_bytes;
    if (members.empty() || bytes + bytes_of(parameter) > limit ||
        !travel_alike(parameters_[members.back().front()], parameter)) {
      members.emplace_back();
      bytes = 0;
    }
    members.back().push_back(i);
    bytes += bytes_of(parameter);
  }
  const bool rides_along = parameters_[members.back().front()].scalar_type() == at::kFloat;
  for (const auto& of_bucket : members) {
    std::vector<at::Tensor> parameters;
    for (const std::size_t i : of_bucket) {
      places_[i] = {buckets_.size(), parameters.size()};
      parameters.push_back(parameters_[i]);
    }
    const bool is_last = &of_bucket == &members.back();
    buckets_.emplace_back(std::move(parameters), is_last && rides_along ? at_buffers_ + num_in_buffers_ : 0);
  }
  if (!rides_along) buckets_.emplace_back(type, at_buffers_ + num_in_buffers_);
}

GradientReducer::Plan::~Plan() {
  if (is_watched_)
    for (const at::Tensor& parameter : parameters_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  for (GradientBucket& bucket : buckets_) bucket.drop();
}

bool GradientReducer::Plan::fits(const Optimizer& optimizer, std::int64_t epoch) const {
  return epoch == epoch_ &&
         std::ranges::equal(parameters_, optimizer.parameters(),
                            [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); }) &&
         std::ranges::all_of(places_, [&, i = std::size_t{0}](const Place& place) mutable {
           const at::Tensor& parameter = parameters_[i++];
           const at::Tensor& view = buckets_[place.bucket].view(place.member);
           return travel_alike(parameter, view) && parameter.sizes() == view.sizes();
         });
}

void GradientReducer::Plan::watch() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Ready>(*this, i));
  is_watched_ = true;
}

// Not before a whole backward has been seen, in which each gradient came at one go: layers that are computed
// again in backward may add to a gradient several times.
void GradientReducer::Plan::begin_sending(ProcessGroup& group, GradientShare share) {
  std::ranges::fill(num_calls_, 0);
  for (GradientBucket& bucket : buckets_) bucket.drop();  // of a step that has thrown
  share_ = share;
  sends_to_ = has_seen_one_ && comes_once_ ? &group : nullptr;
}

void GradientReducer::Plan::note(std::size_t parameter) {
  if (++num_calls_[parameter] > 1 && sends_to_ != nullptr)
    refuse_gradient(names_[parameter], "it has come twice in one backward, and once in the one before",
                    "use such layers from the first step on");
  if (sends_to_ == nullptr) return;
  take(parameter, share_.scale);
  send_full_ones();
}

void GradientReducer::Plan::take(std::size_t parameter, double scale) {
  const Place place = places_[parameter];
  GradientBucket& bucket = buckets_[place.bucket];
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (gradient.defined() && gradient.is_sparse())
    refuse_gradient(names_[parameter], "it is sparse",
                    "several processes need dense ones: Embedding with sparse(false)");
  bucket.take(place.member, gradient, scale);
  if (gradient.defined()) gradient = bucket.view(place.member);  // and the memory that it had is free
}

// In their order, which is that of all processes. The last one waits for what rides along.
void GradientReducer::Plan::send_full_ones() {
  for (GradientBucket& bucket : buckets_) {
    if (&bucket == &buckets_.back() || !bucket.is_full()) return;
    if (!bucket.is_sent()) bucket.send(*sends_to_, /*in_tree=*/false);
  }
}

void GradientReducer::Plan::send_all(ProcessGroup& group, GradientShare share,
                                     std::span<const at::Tensor> losses, const AgreedStop::Votes& votes) {
  const at::NoGradGuard no_grad;
  sends_to_ = nullptr;
  has_seen_one_ = has_seen_one_ || std::ranges::any_of(num_calls_, [](int calls) { return calls > 0; });
  comes_once_ = comes_once_ && std::ranges::all_of(num_calls_, [](int calls) { return calls <= 1; });
  if (!is_host_) agree_on_use(group);
  write_more(share, losses, votes);
  write_buffers(/*are_those_of_all=*/group.rank() == 0);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!buckets_[places_[i].bucket].has(places_[i].member)) take(i, share.scale);
  for (GradientBucket& bucket : buckets_)
    if (!bucket.is_sent()) bucket.send(group, in_tree_);
}

void GradientReducer::Plan::write_more(GradientShare share, std::span<const at::Tensor> losses,
                                       const AgreedStop::Votes& votes) {
  const bool counts = share.num_samples > 0;
  at::Tensor all = more(0, at_buffers_);
  if (is_host_) {
    float* number = all.mutable_data_ptr<float>();
    *number++ = static_cast<float>(share.num_samples);
    *number++ = !counts || std::ranges::all_of(losses, is_finite_on_host) ? 0 : NAN;
    number = std::ranges::copy(votes, number).out;
    for (const at::Tensor& parameter : parameters_) *number++ = counts && parameter.grad().defined() ? 1 : 0;
  } else {
    all.select(0, 0).fill_(share.num_samples);
    all.select(0, 1).zero_();
    for (const at::Tensor& loss : losses)
      if (counts) all.select(0, 1).add_(loss.detach().view(at::IntArrayRef()).mul(0));
  }
}

// A sum of one process's numbers and of zeros.
void GradientReducer::Plan::write_buffers(bool are_those_of_all) {
  if (!are_those_of_all && num_in_buffers_ > 0) more(at_buffers_, num_in_buffers_).zero_();
  std::int64_t at = at_buffers_;
  for (const at::Tensor& buffer : buffers_) {
    if (are_those_of_all) more(at, buffer.numel()).view(buffer.sizes()).copy_(buffer);
    at += buffer.numel();
  }
}

// The host cannot read on a card who has a gradient: this is asked once per epoch, and must then hold.
void GradientReducer::Plan::agree_on_use(ProcessGroup& group) {
  std::string used;
  for (const at::Tensor& parameter : parameters_) used += parameter.grad().defined() ? '1' : '0';
  if (used == used_) return;
  if (!used_.empty()) {
    const auto other = static_cast<std::size_t>(std::ranges::mismatch(used, used_).in1 - used.begin());
    refuse_gradient(names_[other],
                    used_[other] == '1' ? "it has been there in this epoch and is missing now"
                                        : "it has been missing in this epoch and is there now",
                    "with several processes on cards, all steps of an epoch need the same parameters");
  }
  used_ = used_by_any_ = used;
  for (const std::string& of_other : group.all_gather(used))
    for (std::size_t i = 0; i < used.size(); ++i)
      if (of_other[i] == '1') used_by_any_[i] = '1';
}

at::Tensor GradientReducer::Plan::receive(AgreedStop& stop) {
  const at::NoGradGuard no_grad;
  for (GradientBucket& bucket : buckets_) bucket.receive();
  const at::Tensor total = more(0, 1).select(0, 0).clone();
  for (GradientBucket& bucket : buckets_) bucket.divide(total);
  if (is_host_) stop.hear({more(2, 1).const_data_ptr<float>(), AgreedStop::kNumVotes});
  give_gradients();
  give_buffers();
  return more(1, 1).select(0, 0).clone();
}

void GradientReducer::Plan::give_gradients() {
  const float* has_any = is_host_ ? more(2, 1).const_data_ptr<float>() + AgreedStop::kNumVotes : nullptr;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    const bool is_there = has_any != nullptr ? has_any[i] > 0 : used_by_any_[i] == '1';
    gradient = is_there ? buckets_[places_[i].bucket].view(places_[i].member) : at::Tensor();
  }
}

void GradientReducer::Plan::give_buffers() {
  std::int64_t at = at_buffers_;
  for (at::Tensor& buffer : buffers_) {
    buffer.copy_(more(at, buffer.numel()).view(buffer.sizes()));
    at += buffer.numel();
  }
}

GradientReducer::GradientReducer(ProcessGroup& group, AgreedStop& stop, const TrainState& state, bool in_tree)
    : group_(group), stop_(stop), state_(state), in_tree_(in_tree) {}

GradientReducer::~GradientReducer() {
  try {
    if (vote_) vote_->wait();
  } catch (const std::exception&) {  // the next call of the group says it again
  }
}

GradientReducer::Plan& GradientReducer::plan_of(const Optimizer& optimizer) {
  std::unique_ptr<Plan>& plan = plans_[&optimizer];
  if (plan && plan->fits(optimizer, state_.progress.epoch)) return *plan;
  plan.reset();
  plan = std::make_unique<Plan>(optimizer, *state_.model, in_tree_);
  plan->epoch_ = state_.progress.epoch;
  return *plan;
}

void GradientReducer::send_while_ready(const Optimizer& optimizer, GradientShare share) {
  Plan& plan = plan_of(optimizer);
  if (!plan.is_watched()) plan.watch();
  plan.begin_sending(group_, share);
}

at::Tensor GradientReducer::reduce(Optimizer& optimizer, GradientShare share,
                                   std::span<const at::Tensor> losses) {
  Plan& plan = plan_of(optimizer);
  plan.send_all(group_, share, losses, stop_.votes());
  if (!optimizer.parameters().front().is_cpu()) vote();
  const at::Tensor not_finite = plan.receive(stop_);
  group_.broadcast(plan.other_buffers());
  return not_finite;
}

// The host reads no sums on a card: the votes travel by themselves, and are heard a step later.
void GradientReducer::vote() {
  if (const auto former = std::exchange(vote_, nullptr)) {
    former->wait();
    stop_.hear(votes_);
  }
  votes_ = stop_.votes();
  vote_ = group_.start_all_reduce(
      at::from_blob(votes_.data(), {static_cast<std::int64_t>(AgreedStop::kNumVotes)}, at::kFloat));
}

}  // namespace kindling
