#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "kindling/distributed/process_group.h"

namespace kindling {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds milliseconds(double seconds);
// Returns an error text without the location in LibTorch's sources before it and the advice after it.
std::string first_sentence(std::string text);

// Opens the store through which ranks find each other and exchange messages. Throws DistributedError if it
// does not answer.
StorePointer open_store(const LaunchEnvironment& place, const DistributedOptions& options);

// Returns the address at which the other ranks reach this process. Collective.
std::string address_among(c10d::Store& store, const LaunchEnvironment& place);

// The reasons why ranks have left their group, as they have reported them.
class ClosingMessage {
 public:
  // A working store is expected to answer within a thousandth of `longest_answer`.
  ClosingMessage(StorePointer store, std::int64_t rank, std::int64_t size,
                 std::chrono::milliseconds longest_answer = std::chrono::seconds(5))
      : store_(std::move(store)), rank_(rank), size_(size), longest_answer_(longest_answer) {}

  void leave(const std::string& reason);
  // Returns the reasons of all other ranks that have left; empty also if the store does not answer, which may
  // have been lost with its machine.
  std::string of_others();

 private:
  StorePointer store_;
  std::int64_t rank_, size_;
  std::chrono::milliseconds longest_answer_;
  bool is_reachable_ = true;
};

// Returns this machine's address on the network route to another one, as the system would choose it; sends
// nothing. Empty: no route or no such machine.
std::string address_towards(const std::string& host, std::uint16_t port);

// True if only this machine can reach the address.
bool is_loopback_address(const std::string& address);

}  // namespace kindling
