#include "training/parallel/gradient_shards.h"

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
    : shards_(shards),
      shard_(i % shards.state_.streams.size()),
      random_(shards.state_.streams, i % shards.state_.streams.size()) {
  if (i == 0) shards_.begin_window();
  shards_.shard_ = shard_;
  shards_.batch_ = i / shards_.state_.streams.size();
  if (shard_ == 0)
    shards_.begin_batch();
  else
    put_back(shards_.buffers_, shards_.at_start_);
}

// Discards what a step that has thrown has left.
void GradientShards::begin_window() {
  levels_.clear();
  sums_.assign(static_cast<std::size_t>(state_.streams.size()), std::nullopt);
  buffers_ = state_.model->buffers();
}

// Starts from the buffers after the first shard of the previous batch, which rank 0 has.
void GradientShards::begin_batch() {
  if (batch_ > 0) {
    put_back(buffers_, of_first_);
    std::vector<at::Tensor> of_all;
    for (const at::Tensor& buffer : buffers_)
      if (buffer.defined() && buffer.numel() > 0 && (buffer.is_floating_point() || buffer.is_complex()))
        of_all.push_back(buffer);
    if (group_ != nullptr) group_->broadcast(of_all);
  }
  at_start_ = copies_of(buffers_);
}

// A sum that is complete goes into the tree at once, so that it needs no separate memory.
void GradientShards::take(const Optimizer& optimizer, Sums of_loss) {
  if (shard_ == 0) of_first_ = copies_of(buffers_);
  Gradients gradients;
  for (at::Tensor parameter : optimizer.parameters()) {
    gradients.push_back(std::exchange(parameter.mutable_grad(), {}));
  }
  gradients.push_back(std::move(of_loss.weight));
  gradients.push_back(std::move(of_loss.loss));
  std::optional<Gradients>& sum = sums_[static_cast<std::size_t>(shard_)];
  if (sum)
    add(*sum, std::move(gradients));
  else
    sum = std::move(gradients);
  if (batch_ + 1 == num_batches_) put_into_tree(*std::exchange(sum, std::nullopt));
}

// Works like a binary counter: two sums over the same number of shards become one over twice as many.
void GradientShards::put_into_tree(Gradients sum) {
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

// A missing gradient counts as zeros, as it does between ranks.
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

GradientShards::Sums GradientShards::give(const Optimizer& optimizer) {
  for (std::optional<Gradients>& rest : sums_)  // in a window that ended before it was full
    if (rest) put_into_tree(*std::exchange(rest, std::nullopt));
  std::optional<Gradients> sum;
  for (std::optional<Gradients>& level : levels_) {
    if (!level) continue;
    if (sum) add(*level, std::move(*sum));
    sum = std::move(level);
  }
  levels_.clear();
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    at::Tensor parameter = optimizer.parameters()[i];
    parameter.mutable_grad() = (*sum)[i];
  }
  put_back(buffers_, of_first_);
  return {.weight = (*sum)[sum->size() - 2], .loss = sum->back()};
}

}  // namespace kindling
