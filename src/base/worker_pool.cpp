#include "base/worker_pool.h"

#include <algorithm>
#include <utility>

namespace kindling {

void WorkerPool::Task::run() noexcept {
  try {
    work_();
  } catch (...) {
    error_ = std::current_exception();
  }
  work_ = nullptr;  // frees what it has captured on this thread
}

void WorkerPool::Task::wait() {
  {
    std::unique_lock lock(pool_.mutex_);
    pool_.has_ended_.wait(lock, [this] { return state_ == State::done; });
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerPool::Task::cancel() {
  std::unique_lock lock(pool_.mutex_);
  if (state_ == State::waiting) {
    std::erase_if(pool_.queue_, [this](const auto& task) { return task.get() == this; });
    state_ = State::done;
    return;
  }
  pool_.has_ended_.wait(lock, [this] { return state_ == State::done; });
}

WorkerPool::WorkerPool(std::int64_t num_threads, std::function<void()> at_start)
    : at_start_(std::move(at_start)) {
  try {
    for (std::int64_t i = 0; i < std::max<std::int64_t>(num_threads, 1); ++i)
      threads_.emplace_back([this] { work(); });
  } catch (...) {  // the system has no more threads
    end_threads();
    throw;
  }
}

WorkerPool::~WorkerPool() { end_threads(); }

void WorkerPool::end_threads() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    queue_.clear();
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<WorkerPool::Task> WorkerPool::submit(std::function<void()> work) {
  std::shared_ptr<Task> task(new Task(*this, std::move(work)));
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(task);
  }
  has_work_.notify_one();
  return task;
}

void WorkerPool::work() {
  if (at_start_) at_start_();
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return is_ending_ || !queue_.empty(); });
    if (is_ending_) return;
    const std::shared_ptr<Task> task = std::move(queue_.front());
    queue_.pop_front();
    task->state_ = Task::State::running;
    lock.unlock();
    task->run();
    lock.lock();
    task->state_ = Task::State::done;
    has_ended_.notify_all();
  }
}

void run_on_all_cores(std::size_t count, const std::function<void(std::size_t)>& each) {
  const std::size_t num_threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 64);
  const auto run_every = [&](std::size_t first) {
    for (std::size_t i = first; i < count; i += num_threads) each(i);
  };
  std::vector<std::shared_ptr<WorkerPool::Task>> tasks;
  WorkerPool threads(static_cast<std::int64_t>(num_threads));
  for (std::size_t first = 0; first < num_threads; ++first)
    tasks.push_back(threads.submit([&run_every, first] { run_every(first); }));
  for (const auto& task : tasks) task->wait();
}

}  // namespace kindling
