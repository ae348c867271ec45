#include "checkpoint/save_thread.h"

#include <string>
#include <utility>

#include "kindling/base/log.h"

namespace kindling {
namespace {

// A log observer may throw, a destructor must not.
void log_lost_error(const std::string& text) noexcept {
  try {
    log_error("saving failed: " + text);
  } catch (...) {
  }
}

}  // namespace

SaveThread::SaveThread() : thread_([this] { work(); }) {}

SaveThread::~SaveThread() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_busy_; });
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  try {
    check();
  } catch (const std::exception& error) {
    log_lost_error(error.what());
  } catch (...) {
    log_lost_error("an exception not derived from std::exception");
  }
}

void SaveThread::start(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_busy_; });
  rethrow(lock);
  job_ = std::move(job);
  is_busy_ = true;
  changed_.notify_all();
}

bool SaveThread::is_busy() {
  const std::lock_guard lock(mutex_);
  return is_busy_;
}

void SaveThread::check() {
  std::unique_lock lock(mutex_);
  if (!is_busy_) rethrow(lock);
}

void SaveThread::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_busy_; });
  rethrow(lock);
}

void SaveThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_busy_ || is_ending_; });
    if (!is_busy_) return;
    std::function<void()> job = std::exchange(job_, nullptr);
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    job = nullptr;  // releases its data, such as a snapshot, before the next one is created
    lock.lock();
    error_ = std::move(error);
    is_busy_ = false;
    changed_.notify_all();
  }
}

void SaveThread::rethrow(std::unique_lock<std::mutex>& lock) {
  if (!error_) return;
  const std::exception_ptr error = std::exchange(error_, nullptr);
  lock.unlock();
  std::rethrow_exception(error);
}

}  // namespace kindling
