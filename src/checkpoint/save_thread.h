#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace kindling {

// Runs one job at a time on a thread of its own. Called from one thread; no error of a job is ever lost.
class SaveThread {
 public:
  SaveThread();
  // Waits for the job. An error that nobody has asked for goes to the app log.
  ~SaveThread();
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  // Waits for the former job, then starts this one. Throws what the former one has thrown; then this one is
  // not started.
  void start(std::function<void()> job);
  bool is_busy();
  // Throws what a finished job has thrown, once. Never waits.
  void check();
  // Waits for the job and throws what it has thrown, once.
  void finish();

 private:
  void work();
  void rethrow(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool is_busy_ = false, is_ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace kindling
