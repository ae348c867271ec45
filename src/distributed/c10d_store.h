#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "kindling/distributed/process_group.h"

namespace kindling {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds milliseconds(double seconds);
// Without the place in LibTorch's sources before it and the advice behind it.
std::string first_sentence(std::string text);

// Where processes find each other, and leave word. Throws DistributedError when it does not answer.
StorePointer open_store(const LaunchEnvironment& place, const DistributedOptions& options);

// Where the others of its group reach this process. All of them call it.
std::string address_among(c10d::Store& store, const LaunchEnvironment& place);

// Why processes have left their group, each by its own account.
class ClosingMessage {
 public:
  // What a store that is there takes for an answer is a thousandth of `longest_answer`.
  ClosingMessage(StorePointer store, std::int64_t rank, std::int64_t size,
            std::chrono::milliseconds longest_answer = std::chrono::seconds(5))
      : store_(std::move(store)), rank_(rank), size_(size), longest_answer_(longest_answer) {}

  void leave(const std::string& reason);
  // Of all others that have left; empty also where the store does not answer, which may be gone with the
  // machine that it was on.
  std::string of_others();

 private:
  StorePointer store_;
  std::int64_t rank_, size_;
  std::chrono::milliseconds longest_answer_;
  bool is_reachable_ = true;
};

}  // namespace kindling
