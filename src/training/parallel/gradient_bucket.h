#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Gradients of one dtype that travel together, in one piece of memory.
class GradientBucket {
 public:
  // Of these parameters, all of one dtype and device, and of `num_more` numbers behind them.
  GradientBucket(std::vector<at::Tensor> parameters, std::int64_t num_more);
  GradientBucket(at::TensorOptions options, std::int64_t num_more);  // of these alone

  std::size_t size() const noexcept { return parameters_.size(); }
  const at::Tensor& parameter(std::size_t i) const { return parameters_[i]; }
  // Where the gradient of a parameter is, of its sizes and strides.
  const at::Tensor& view(std::size_t i) const { return views_[i]; }
  const at::Tensor& more() const noexcept { return more_; }

  bool has(std::size_t i) const { return has_[i]; }
  // Takes a gradient, times `scale`; an undefined one, and every one at scale 0, counts as zeros.
  void take(std::size_t i, const at::Tensor& gradient, double scale);
  bool is_full() const noexcept { return num_missing_ == 0; }

  bool is_sent() const noexcept { return work_ != nullptr; }
  // To be added up in an order that is the group's own, or, with `in_tree`, in that of a binary tree over the
  // ranks: for a size that is a power of two. By the group's `compression`, gradients of 32 bits travel as
  // bfloat16; the numbers behind them never do.
  void send(ProcessGroup& group, bool in_tree);
  // Until the sums are there; the bucket is empty then.
  void receive();
  void divide(const at::Tensor& total);  // all gradients, by a number on their device

  // Forgets what it has been given; waits for what is under way.
  void drop() noexcept;

 private:
  void send_narrowed(ProcessGroup& group);

  std::vector<at::Tensor> parameters_, views_;
  at::Tensor flat_, gradients_, more_;
  std::vector<bool> has_;
  std::size_t num_missing_ = 0;
  at::Tensor theirs_;    // of another process
  at::Tensor narrowed_;  // the gradients as bfloat16, where they travel so
  bool is_narrowed_ = false;
  std::unique_ptr<ProcessGroup::Work> work_, work_of_more_;
};

}  // namespace kindling
