#include "training/gradient_shards.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace kindling {
namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

void put_back(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(values[i]);
}

}  // namespace

GradientShards::Scope::Scope(GradientShards& shards, std::int64_t i)
    : shards_(shards), i_(i), random_(shards.state_.streams, i) {
  if (i_ == 0) {
    shards_.levels_.clear();  // of a step that has thrown
    shards_.buffers_ = shards_.state_.model->buffers();
    shards_.at_start_ = copies_of(shards_.buffers_);
  } else {
    put_back(shards_.buffers_, shards_.at_start_);
  }
}

GradientShards::Scope::~Scope() {
  if (i_ == 0) shards_.of_first_ = copies_of(shards_.buffers_);
}

// A binary counter: two sums of as many shards become one of twice as many.
void GradientShards::take(const Optimizer& optimizer) {
  Gradients sum;
  for (at::Tensor parameter : optimizer.parameters()) {
    sum.push_back(std::exchange(parameter.mutable_grad(), {}));
  }
  std::size_t level = 0;
  for (; level < levels_.size() && levels_[level]; ++level) {
    Gradients left = std::move(*levels_[level]);
    levels_[level].reset();
    add(left, std::move(sum));
    sum = std::move(left);
  }
  if (level == levels_.size()) levels_.emplace_back();
  levels_[level] = std::move(sum);
}

// A gradient that is not there counts as zeros, as it does between processes.
void GradientShards::add(Gradients& to, Gradients from) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!to[i].defined() && !from[i].defined()) continue;
    if (!to[i].defined()) {
      to[i] = from[i].add(0);
    } else if (from[i].defined()) {
      to[i] = to[i].add(from[i]);
    } else {
      to[i] = to[i].add(0);
    }
  }
}

void GradientShards::give(const Optimizer& optimizer) {
  std::optional<Gradients> sum;
  for (std::optional<Gradients>& level : levels_) {
    if (!level) continue;
    if (sum) add(*level, std::move(*sum));
    sum = std::move(level);
  }
  levels_.clear();
  for (std::size_t i = 0; sum && i < sum->size(); ++i) {
    at::Tensor parameter = optimizer.parameters()[i];
    parameter.mutable_grad() = (*sum)[i];
  }
  put_back(buffers_, of_first_);
}

}  // namespace kindling
