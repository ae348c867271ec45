#include "training/parallel/gradient_plan.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kindling/base/error.h"
#include "tensors/host_number.h"

namespace kindling {
namespace {

// The numbers that are reduced along with the gradients begin with the weight, whether a loss was not finite,
// and the sum of the losses. On the host, the votes and the use of the parameters follow.
constexpr std::int64_t kWeight = 0, kNotFinite = 1, kLossSum = 2, kVotes = 3;

// The first bucket is small, so that the first transfer starts early. Each transfer has a fixed cost.
constexpr std::int64_t kFirstBucket_bytes = 1 << 20, kBucket_bytes = 25 << 20;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

bool travel_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

bool is_finite_on_host(const at::Tensor& loss) {
  return std::isfinite(host_number(loss.is_cpu() ? loss : loss.cpu()));
}

[[noreturn]] void refuse_gradient(const std::string& parameter, const std::string& found,
                                  const std::string& remedy) {
  throw ConfigError({.place = "the gradient of '" + parameter + "'", .found = found, .remedy = remedy});
}

}  // namespace

// A hook that autograd calls when the gradient of a parameter is complete for this backward. A tensor has one
// such hook, so this one calls that of the user, on the gradient of this rank, which it may change.
class GradientPlan::Ready : public torch::autograd::PostAccumulateGradHook {
 public:
  Ready(std::shared_ptr<GradientPlan*> plan, std::size_t parameter,
        std::unique_ptr<PostAccumulateGradHook> of_user)
      : plan_(std::move(plan)), parameter_(parameter), of_user_(std::move(of_user)) {}
  void operator()(const torch::autograd::Variable& tensor) override {
    if (of_user_) (*of_user_)(tensor);
    if (*plan_ != nullptr) (*plan_)->note(parameter_);
  }

  // Returns the hook of a parameter, without one of these around it; removes it there.
  static std::unique_ptr<PostAccumulateGradHook> take_from(const at::Tensor& parameter) {
    if (torch::autograd::impl::get_autograd_meta(parameter) == nullptr) return nullptr;
    auto hook = std::move(torch::autograd::impl::post_acc_grad_hooks(parameter));
    auto* const ready = dynamic_cast<Ready*>(hook.get());
    return ready != nullptr ? std::move(ready->of_user_) : std::move(hook);
  }
  static bool is_on(const at::Tensor& parameter, const GradientPlan& plan) {
    if (torch::autograd::impl::get_autograd_meta(parameter) == nullptr) return false;
    const auto* ready =
        dynamic_cast<const Ready*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
    return ready != nullptr && ready->plan_ == plan.self_;
  }

 private:
  std::shared_ptr<GradientPlan*> plan_;
  std::size_t parameter_;
  std::unique_ptr<PostAccumulateGradHook> of_user_;
};

namespace {

// Returns buffers such as running means. Integer counts are the same on all ranks, because all take the same
// steps.
std::vector<at::Tensor> floating_buffers(const torch::nn::Module& model) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : model.buffers())
    if (buffer.defined() && buffer.numel() > 0 && (buffer.is_floating_point() || buffer.is_complex()))
      buffers.push_back(buffer);
  return buffers;
}

}  // namespace

GradientPlan::GradientPlan(const Optimizer& optimizer, const torch::nn::Module& model, std::int64_t epoch,
                           bool in_tree)
    : parameters_(optimizer.parameters()),
      names_(optimizer.names()),
      num_calls_(parameters_.size()),
      epoch_(epoch),
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
  at_buffers_ =
      kVotes + (is_host_ ? static_cast<std::int64_t>(StopConsensus::kNumVotes + parameters_.size()) : 0);
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
  const at::ScalarType last = parameters_[members.back().front()].scalar_type();
  const bool rides_along = last == at::kFloat || last == at::kDouble;
  is_wide_ = last == at::kDouble;
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

GradientPlan::~GradientPlan() {
  *self_ = nullptr;
  for (const at::Tensor& parameter : parameters_)
    if (Ready::is_on(parameter, *this))  // else another one was registered since
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, Ready::take_from(parameter));
  for (GradientBucket& bucket : buckets_) bucket.drop();
}

bool GradientPlan::fits(const Optimizer& optimizer, std::int64_t epoch) const {
  return epoch == epoch_ &&
         std::ranges::equal(parameters_, optimizer.parameters(),
                            [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); }) &&
         std::ranges::all_of(places_, [&, i = std::size_t{0}](const Place& place) mutable {
           const at::Tensor& parameter = parameters_[i++];
           const at::Tensor& view = buckets_[place.bucket].view(place.member);
           return travel_alike(parameter, view) && parameter.sizes() == view.sizes();
         });
}

void GradientPlan::watch() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i], std::make_unique<Ready>(self_, i, Ready::take_from(parameters_[i])));
  is_watched_ = true;
}

// Sending during backward starts only after one complete backward in which each gradient was accumulated
// once: layers that are recomputed in backward may add to a gradient several times.
void GradientPlan::begin_sending(ProcessGroup& group, GradientShare share) {
  std::ranges::fill(num_calls_, 0);
  counts_calls_ = true;
  for (GradientBucket& bucket : buckets_) bucket.drop();  // left over from a step that has thrown
  share_ = share;
  sends_to_ = has_seen_one_ && comes_once_ ? &group : nullptr;
}

void GradientPlan::note(std::size_t parameter) {
  if (++num_calls_[parameter] > 1 && sends_to_ != nullptr)
    refuse_gradient(names_[parameter],
                    "it was accumulated twice in this backward pass, but only once in the previous one",
                    "use the layers that recompute (activation checkpoints) from the first step on");
  if (sends_to_ == nullptr) return;
  take(parameter, share_.scale);
  send_full_ones();
}

void GradientPlan::take(std::size_t parameter, double scale) {
  const Place place = places_[parameter];
  GradientBucket& bucket = buckets_[place.bucket];
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (gradient.defined() && gradient.is_sparse())
    refuse_gradient(names_[parameter], "it is sparse",
                    "data-parallel training needs dense gradients: use Embedding with sparse(false)");
  bucket.take(place.member, gradient, scale);
  if (gradient.defined()) gradient = bucket.view(place.member);  // this frees the gradient's previous memory
}

// Sends buckets in their order, which is the same on all ranks. The last bucket waits for the values that are
// reduced along with the gradients.
void GradientPlan::send_full_ones() {
  for (GradientBucket& bucket : buckets_) {
    if (&bucket == &buckets_.back() || !bucket.is_full()) return;
    if (!bucket.is_sent()) bucket.send(*sends_to_, /*in_tree=*/false);
  }
}

void GradientPlan::send_all(ProcessGroup& group, GradientShare share, std::span<const at::Tensor> losses,
                            const std::optional<StepLoss>& loss_sum, const StopConsensus::Votes& votes) {
  const at::NoGradGuard no_grad;
  sends_to_ = nullptr;
  if (std::exchange(counts_calls_, false)) {
    has_seen_one_ = has_seen_one_ || std::ranges::any_of(num_calls_, [](int calls) { return calls > 0; });
    comes_once_ = comes_once_ && std::ranges::all_of(num_calls_, [](int calls) { return calls <= 1; });
  }
  if (!is_host_) agree_on_use(group);
  write_more(share, losses, loss_sum, votes);
  write_buffers(/*are_those_of_all=*/group.rank() == 0);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!buckets_[places_[i].bucket].has(places_[i].member)) take(i, share.scale);
  for (GradientBucket& bucket : buckets_)
    if (!bucket.is_sent()) bucket.send(group, in_tree_);
}

void GradientPlan::write_more(GradientShare share, std::span<const at::Tensor> losses,
                              const std::optional<StepLoss>& loss_sum, const StopConsensus::Votes& votes) {
  const TotalWeight& weight = share.weight;
  const bool counts = !weight.is_known_zero();
  at::Tensor all = more(0, at_buffers_);
  if (is_host_) {
    const auto write = [&]<class Number>(Number* number) {
      *number++ = static_cast<Number>(weight.number);
      *number++ = !counts || std::ranges::all_of(losses, is_finite_on_host) ? 0 : NAN;
      *number++ = static_cast<Number>(counts && loss_sum ? loss_sum->number : 0);
      number = std::ranges::copy(votes, number).out;
      for (const at::Tensor& parameter : parameters_)
        *number++ = counts && parameter.grad().defined() ? 1 : 0;
    };
    if (is_wide_)
      write(all.mutable_data_ptr<double>());
    else
      write(all.mutable_data_ptr<float>());
  } else {
    all.select(0, kWeight).fill_(weight.number);
    if (!weight.is_known()) all.select(0, kWeight).add_(weight.on_device.view(at::IntArrayRef()));
    all.select(0, kNotFinite).zero_();
    for (const at::Tensor& loss : losses)
      if (counts) all.select(0, kNotFinite).add_(loss.detach().view(at::IntArrayRef()).mul(0));
    has_loss_ = has_loss_ || loss_sum.has_value();
    if (has_loss_) all.select(0, kLossSum).fill_(loss_sum ? loss_sum->number : 0);
    if (counts && loss_sum && loss_sum->on_device.defined())
      all.select(0, kLossSum).copy_(loss_sum->on_device.view(at::IntArrayRef()));
  }
}

// The sum over ranks is rank 0's buffers, because the other ranks contribute zeros.
void GradientPlan::write_buffers(bool are_those_of_all) {
  if (!are_those_of_all && num_in_buffers_ > 0) more(at_buffers_, num_in_buffers_).zero_();
  std::int64_t at = at_buffers_;
  for (const at::Tensor& buffer : buffers_) {
    if (are_those_of_all) more(at, buffer.numel()).view(buffer.sizes()).copy_(buffer);
    at += buffer.numel();
  }
}

// On a GPU the host cannot read from the sums which parameters have a gradient on any rank. The ranks
// exchange this once per epoch, and it must not change until its end.
void GradientPlan::agree_on_use(ProcessGroup& group) {
  std::string used;
  for (const at::Tensor& parameter : parameters_) used += parameter.grad().defined() ? '1' : '0';
  if (used == used_) return;
  if (!used_.empty()) {
    const auto other = static_cast<std::size_t>(std::ranges::mismatch(used, used_).in1 - used.begin());
    refuse_gradient(names_[other],
                    used_[other] == '1' ? "it existed earlier in this epoch and is missing now"
                                        : "it was missing earlier in this epoch and exists now",
                    "in data-parallel training on GPUs, every step of an epoch must use the same parameters");
  }
  used_ = used_by_any_ = used;
  for (const std::string& of_other : group.all_gather(used))
    for (std::size_t i = 0; i < used.size(); ++i)
      if (of_other[i] == '1') used_by_any_[i] = '1';
}

at::Tensor GradientPlan::receive(StopConsensus& stop) {
  const at::NoGradGuard no_grad;
  for (GradientBucket& bucket : buckets_) bucket.receive();
  const at::Tensor total = more(kWeight, 1).select(0, 0).clone();
  is_empty_ = is_host_ && number_at(kWeight) == 0;
  if (is_host_)
    mean_loss_.number = number_at(kLossSum) / number_at(kWeight);
  else if (has_loss_)
    mean_loss_.on_device = more(kLossSum, 1).select(0, 0).div(total);  // NaN if no label has counted
  if (!is_host_) total.masked_fill_(total.eq(0), 1);                   // the sums of gradients are 0, too
  if (!is_empty_)
    for (GradientBucket& bucket : buckets_) bucket.divide(total);
  if (is_host_) {
    StopConsensus::Votes sums{};
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = static_cast<float>(number_at(kVotes + static_cast<std::int64_t>(i)));
    stop.count(sums);
  }
  give_gradients();
  give_buffers();
  return more(kNotFinite, 1).select(0, 0).clone();
}

// On the host.
double GradientPlan::number_at(std::int64_t index) const {
  const at::Tensor all = more(0, at_buffers_);
  return is_wide_ ? all.const_data_ptr<double>()[index] : all.const_data_ptr<float>()[index];
}

void GradientPlan::give_gradients() {
  constexpr auto kFirstUse = kVotes + static_cast<std::int64_t>(StopConsensus::kNumVotes);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    const bool is_there =
        is_host_ ? number_at(kFirstUse + static_cast<std::int64_t>(i)) > 0 : used_by_any_[i] == '1';
    gradient = is_there ? buckets_[places_[i].bucket].view(places_[i].member) : at::Tensor();
  }
}

void GradientPlan::give_buffers() {
  std::int64_t at = at_buffers_;
  for (at::Tensor& buffer : buffers_) {
    buffer.copy_(more(at, buffer.numel()).view(buffer.sizes()));
    at += buffer.numel();
  }
}

}  // namespace kindling
