#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "distributed/c10d_store.h"

namespace kindling {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// Sums a small tensor in host memory over the ranks of a group, by recursive doubling: each rank exchanges
// its partial sum with its neighbour, then with the rank two places away, four, …: log2(size) messages in
// sequence. A ring sends fewer bytes, but waits for 2 (size - 1) messages, each of which wakes up a process,
// and for small tensors these wake-ups dominate the cost. Both partners of an exchange add in the same order,
// so the results of all ranks are bit-identical.
class DoublingSum {
 public:
  // Below it the number of messages dominates, above it the bytes.
  static constexpr std::size_t kLargest_bytes = 1 << 19;

  // Starts at once. `tag` must be unique among running sums and the same on all ranks.
  DoublingSum(c10d::Backend& group, at::Tensor tensor, int tag);
  // Waits until the sum is in the tensor.
  void wait(const Deadline& deadline);

 private:
  void send(int to);
  void receive(int from);
  void exchange(int other);
  void add(int other, const Deadline& deadline);  // adds what has been received from it

  c10d::Backend& group_;
  at::Tensor tensor_, theirs_;
  int tag_;
  int num_doubling_;  // ranks: the largest power of two. The remaining ranks send their data to one of them.
  WorkPointer sent_{}, received_{};
};

}  // namespace kindling
