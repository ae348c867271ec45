#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "kindling/distributed/process_group.h"

namespace kindling {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds milliseconds(double seconds);

// The end of a wait that consists of several: each of them gets the time that is left.
class Deadline {
 public:
  explicit Deadline(double seconds) : end_(std::chrono::steady_clock::now() + milliseconds(seconds)) {}
  std::chrono::milliseconds left() const;  // at least 1: c10d takes 0 as no limit

 private:
  std::chrono::steady_clock::time_point end_;
};

// Returns the result of a call that may block without a limit, as a request to a store does if its machine
// does not answer; nothing if it takes longer than `limit`. It runs in a detached thread, which then outlives
// this one: it captures by value. Throws what the call throws, and std::system_error without a thread.
template <class Call>
std::optional<std::invoke_result_t<Call&>> answer_within(std::chrono::milliseconds limit, Call call) {
  std::packaged_task<std::invoke_result_t<Call&>()> task(std::move(call));
  auto answer = task.get_future();
  std::thread(std::move(task)).detach();
  if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

// Returns an error text without the location in LibTorch's sources before it and the advice after it.
std::string first_sentence(std::string text);

// Opens the store through which ranks find each other and exchange messages. Throws DistributedError if it
// does not answer before the deadline.
StorePointer open_store(const LaunchEnvironment& place, const DistributedOptions& options,
                        const Deadline& deadline);

// Waits until all ranks have called it. Throws DistributedError that names a rank that has not, and at once
// if another process has this rank.
void meet(c10d::Store& store, const LaunchEnvironment& place, const Deadline& deadline);

// Returns the address at which the other ranks reach this process. Collective.
std::string address_among(c10d::Store& store, const LaunchEnvironment& place);

// The store of ranks that are threads. If one of them cannot join, the others do not wait for it.
class ThreadStore : public c10d::HashStore {
 public:
  using HashStore::wait;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void give_up(std::exception_ptr error);
  // Returns the error of the rank that gave up first, once all threads have ended.
  const std::exception_ptr& error() const noexcept { return error_; }

 private:
  std::exception_ptr error_;
};

// The reasons why ranks have left their group, as they have reported them.
class ClosingMessage {
 public:
  // A working store is expected to answer within a thousandth of `longest_answer`.
  ClosingMessage(StorePointer store, std::int64_t rank, std::int64_t size,
                 std::chrono::milliseconds longest_answer = std::chrono::seconds(5))
      : store_(std::move(store)), rank_(rank), size_(size), longest_answer_(longest_answer) {}

  void leave(const std::string& reason) noexcept;
  // Returns the reasons of all other ranks that have left; empty also if the store does not answer, which may
  // have been lost with its machine.
  std::string of_others() noexcept;

 private:
  // Returns nothing if the store does not answer, and asks it nothing any more.
  template <class Call>
  std::string ask(Call call) noexcept;

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
