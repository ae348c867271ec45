#include "training/parallel/gradient_bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "tensors/real_numbers.h"

namespace kindling {
namespace {

// Each gradient begins at a multiple of this many numbers, because operators are fastest on aligned memory.
constexpr std::int64_t kAlignment = 16;

std::int64_t aligned(std::int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

bool holds_plain_floats(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && !tensor.is_neg();
}

}  // namespace

GradientBucket::GradientBucket(std::vector<at::Tensor> parameters, std::int64_t num_more)
    : parameters_(std::move(parameters)), has_(parameters_.size(), false), num_missing_(parameters_.size()) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : parameters_) count += aligned(parameter.numel());
  flat_ = at::zeros({count + num_more}, parameters_.front().options().requires_grad(false));
  gradients_ = flat_.narrow(0, 0, count);
  more_ = flat_.narrow(0, count, num_more);
  std::int64_t at = 0;
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor part = flat_.narrow(0, at, parameter.numel());
    views_.push_back(parameter.is_non_overlapping_and_dense()
                         ? part.as_strided(parameter.sizes(), parameter.strides(), part.storage_offset())
                         : part.view(parameter.sizes()));
    at += aligned(parameter.numel());
  }
}

GradientBucket::GradientBucket(at::TensorOptions options, std::int64_t num_more)
    : flat_(at::zeros({num_more}, options)), gradients_(flat_.narrow(0, 0, 0)), more_(flat_) {}

void GradientBucket::take(std::size_t i, const at::Tensor& gradient, double scale) {
  const at::NoGradGuard no_grad;
  const at::Tensor& view = views_[i];
  if (!gradient.defined() || scale == 0) {
    view.zero_();
  } else if (gradient.is_same(view)) {
    view.mul_(scale);
  } else if (holds_plain_floats(gradient) &&
             holds_plain_floats(view)) {  // avoids the overhead of an operator
    const float* const from = gradient.const_data_ptr<float>();
    float* const to = view.mutable_data_ptr<float>();
    const auto factor = static_cast<float>(scale);
    for (std::int64_t k = 0; k < view.numel(); ++k) to[k] = from[k] * factor;
  } else {
    view.copy_(gradient).mul_(scale);
  }
  if (!has_[i]) --num_missing_;
  has_[i] = true;
}

namespace {

struct NothingUnderWay : ProcessGroup::Work {
  void wait() override {}
};

}  // namespace

// Recursive doubling: two neighbours exchange their values, so that each has the sum of both, then exchange
// sums with the pair next to them, and so on. Both add in the order of their ranks: the sum of two NaNs is
// the first one.
void GradientBucket::send(ProcessGroup& group, bool in_tree) {
  is_narrowed_ = !in_tree && group.options().compression == "bf16" && gradients_.numel() > 0 &&
                 gradients_.scalar_type() == at::kFloat;
  if (is_narrowed_) return send_narrowed(group);
  if (!in_tree) {
    work_ = group.start_all_reduce(flat_);
    return;
  }
  const at::NoGradGuard no_grad;
  if (!theirs_.defined()) theirs_ = at::zeros_like(flat_);
  for (std::int64_t distance = 1; distance < group.size(); distance *= 2) {
    const std::int64_t other = group.rank() ^ distance;
    group.exchange(flat_, theirs_, other);
    const bool is_first = group.rank() < other;
    at::add_out(flat_, is_first ? flat_ : theirs_, is_first ? theirs_ : flat_);
  }
  work_ = std::make_unique<NothingUnderWay>();
}

void GradientBucket::send_narrowed(ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  if (!narrowed_.defined()) narrowed_ = at::zeros_like(gradients_, at::kBFloat16);
  narrowed_.copy_(gradients_);
  work_ = group.start_all_reduce(narrowed_);
  if (more_.numel() > 0) work_of_more_ = group.start_all_reduce(more_);
}

void GradientBucket::receive() {
  const auto work = std::exchange(work_, nullptr), of_more = std::exchange(work_of_more_, nullptr);
  has_.assign(parameters_.size(), false);
  num_missing_ = parameters_.size();
  work->wait();
  if (of_more) of_more->wait();
  if (is_narrowed_) gradients_.copy_(narrowed_);
}

void GradientBucket::divide(const at::Tensor& total) {
  if (gradients_.numel() > 0) numbers_in_memory(gradients_).div_(total);
}

void GradientBucket::drop() noexcept {
  for (auto* const work : {&work_, &work_of_more_}) {
    try {
      if (*work) (*work)->wait();
    } catch (const std::exception&) {  // the next call of the group reports it again
    }
    *work = nullptr;
  }
  has_.assign(parameters_.size(), false);
  num_missing_ = parameters_.size();
}

}  // namespace kindling
