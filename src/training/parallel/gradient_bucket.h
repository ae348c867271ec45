#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Gradients of one dtype that are reduced together, in one contiguous buffer.
class GradientBucket {
 public:
  // Holds the gradients of these parameters, all of one dtype and device, followed by `num_more` numbers.
  GradientBucket(std::vector<at::Tensor> parameters, std::int64_t num_more);
  GradientBucket(at::TensorOptions options, std::int64_t num_more);  // of these numbers alone

  std::size_t size() const noexcept { return parameters_.size(); }
  const at::Tensor& parameter(std::size_t i) const { return parameters_[i]; }
  // Returns the view of a parameter's gradient in the bucket, with its sizes and strides.
  const at::Tensor& view(std::size_t i) const { return views_[i]; }
  const at::Tensor& more() const noexcept { return more_; }

  bool has(std::size_t i) const { return has_[i]; }
  // Copies a gradient, times `scale`, into the bucket. An undefined gradient, and any gradient at scale 0,
  // counts as zeros.
  void take(std::size_t i, const at::Tensor& gradient, double scale);
  bool is_full() const noexcept { return num_missing_ == 0; }

  bool is_sent() const noexcept { return work_ != nullptr; }
  // Starts the sum over ranks, in the group's order or, with `in_tree`, in that of a binary tree over the
  // ranks, whose number must be a power of two. Depending on the group's `compression`, float32 gradients are
  // sent as bfloat16; the numbers after them never are.
  void send(ProcessGroup& group, bool in_tree);
  // Waits for the sums; the bucket is empty afterwards.
  void receive();
  void divide(const at::Tensor& total);  // divides all gradients by a number on their device

  // Discards the contents; waits for a running transfer.
  void drop() noexcept;

 private:
  void send_narrowed(ProcessGroup& group);

  std::vector<at::Tensor> parameters_, views_;
  at::Tensor flat_, gradients_, more_;
  std::vector<bool> has_;
  std::size_t num_missing_ = 0;
  at::Tensor theirs_;    // received from another rank
  at::Tensor narrowed_;  // the gradients as bfloat16, with compression
  bool is_narrowed_ = false;
  std::unique_ptr<ProcessGroup::Work> work_, work_of_more_;
};

}  // namespace kindling
