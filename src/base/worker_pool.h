#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Threads that begin tasks in the order in which they were submitted.
class KINDLING_API WorkerPool {
 public:
  // A task that was submitted. Used by one thread.
  class KINDLING_API Task {
   public:
    // Waits for the end of the task, and throws again what it has thrown. Only once.
    void wait();
    // Drops the task if it has not begun, otherwise waits for its end. Its exception is discarded.
    void cancel();

   private:
    friend class WorkerPool;
    enum class State : std::uint8_t { waiting, running, done };
    Task(WorkerPool& pool, std::function<void()> work) : pool_(pool), work_(std::move(work)) {}
    void run() noexcept;

    WorkerPool& pool_;
    std::function<void()> work_;
    State state_ = State::waiting;  // guarded by the pool's mutex
    std::exception_ptr error_;
  };

  // `at_start` runs on each thread before its first task and must not throw.
  explicit WorkerPool(std::int64_t num_threads, std::function<void()> at_start = {});
  // Drops the tasks that have not begun, and waits for the others. No one may wait for a task any more.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  std::int64_t num_threads() const noexcept { return static_cast<std::int64_t>(threads_.size()); }
  std::shared_ptr<Task> submit(std::function<void()> work);

 private:
  void work();
  void end_threads() noexcept;

  std::mutex mutex_;
  std::condition_variable has_work_, has_ended_;
  std::deque<std::shared_ptr<Task>> queue_;  // those that have not begun
  bool is_ending_ = false;
  std::function<void()> at_start_;
  std::vector<std::thread> threads_;
};

// Calls each(0), …, each(count - 1) on as many threads as there are cores. Throws what the first thread with
// an error has thrown.
KINDLING_API void run_on_all_cores(std::size_t count, const std::function<void(std::size_t)>& each);

}  // namespace kindling
