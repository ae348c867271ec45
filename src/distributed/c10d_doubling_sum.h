#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace kindling {

// The sum of a small tensor in host memory over the processes of a group, by recursive doubling: a process
// exchanges with its neighbour all that both have, then with one two places on, four, …, log2(size) messages
// in a row. A ring sends fewer bytes and waits for 2 (size - 1) messages, each of which wakes a process: of
// what is small, waking up is all of the cost. Two that exchange add in the same order, so all
// processes come to the same bits.
class DoublingSum {
 public:
  // Below it the messages count, above it the bytes.
  static constexpr std::size_t kLargest_bytes = 1 << 19;

  // Begins at once. `tag` is that of this sum alone while it is under way, the same in all processes.
  DoublingSum(c10d::Backend& group, at::Tensor tensor, int tag);
  // Until the sum is in the tensor.
  void wait();

 private:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  void send(int to);
  void receive(int from);
  void exchange(int other);
  void add(int other);  // what has been received from it

  c10d::Backend& group_;
  at::Tensor tensor_, theirs_;
  int tag_;
  int num_doubling_;  // processes: the largest power of two. Those beyond give what they have to one of them.
  WorkPointer sent_, received_;
};

}  // namespace kindling
