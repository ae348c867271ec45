#include "distributed/c10d_doubling_sum.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <bit>
#include <utility>
#include <vector>

namespace kindling {

DoublingSum::DoublingSum(c10d::Backend& group, at::Tensor tensor, int tag)
    : group_(group),
      tensor_(std::move(tensor)),
      tag_(tag),
      num_doubling_(static_cast<int>(std::bit_floor(static_cast<unsigned>(group.getSize())))) {
  theirs_ = at::empty_like(tensor_);
  const int rank = group_.getRank();
  if (rank >= num_doubling_) {
    send(rank - num_doubling_);
  } else if (rank + num_doubling_ < group_.getSize()) {
    receive(rank + num_doubling_);
  } else if (num_doubling_ > 1) {
    exchange(rank ^ 1);
  }
}

void DoublingSum::wait(const Deadline& deadline) {
  const at::NoGradGuard no_grad;
  const int rank = group_.getRank();
  if (rank >= num_doubling_) {
    sent_->wait(deadline.left());
    receive(rank - num_doubling_);
    received_->wait(deadline.left());
    tensor_.copy_(theirs_);
    return;
  }
  const bool has_one_beyond = rank + num_doubling_ < group_.getSize();
  if (has_one_beyond) add(rank + num_doubling_, deadline);
  for (int distance = 1; distance < num_doubling_; distance *= 2) {
    if (distance > 1 || has_one_beyond) exchange(rank ^ distance);
    add(rank ^ distance, deadline);
  }
  if (!has_one_beyond) return;
  send(rank + num_doubling_);
  sent_->wait(deadline.left());
}

void DoublingSum::send(int to) {
  std::vector<at::Tensor> tensors{tensor_};
  sent_ = group_.send(tensors, to, tag_);
}

void DoublingSum::receive(int from) {
  std::vector<at::Tensor> tensors{theirs_};
  received_ = group_.recv(tensors, from, tag_);
}

void DoublingSum::exchange(int other) {
  receive(other);
  send(other);
}

// Waits until this rank's own message has been sent.
void DoublingSum::add(int other, const Deadline& deadline) {
  std::exchange(received_, nullptr)->wait(deadline.left());
  if (const WorkPointer sent = std::exchange(sent_, nullptr)) sent->wait(deadline.left());
  // Of two NaNs the first one stays: the same one on all ranks.
  const bool is_first = group_.getRank() < other;
  at::add_out(tensor_, is_first ? tensor_ : theirs_, is_first ? theirs_ : tensor_);
}

}  // namespace kindling
