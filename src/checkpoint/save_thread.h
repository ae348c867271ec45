#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace kindling {

// Runs one job at a time on a separate thread. Call it from one thread; errors of jobs are never lost.
class SaveThread {
 public:
  SaveThread();
  // Waits for the job. Logs an error that has not been retrieved.
  ~SaveThread();
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  // Waits for the previous job, then starts this one. Throws the error of the previous job; this one is not
  // started then.
  void start(std::function<void()> job);
  bool is_busy();
  // Throws the error of a finished job, once. Never waits.
  void check();
  // Waits for the job and throws its error, once.
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
