// Records, disturbs, or interrupts by a kill, the system calls of a save.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/file_operations.h"

namespace kindling {

// The system calls without waiting for the disk, for tests without power loss.
class UnsyncedCalls : public FileOperations {
 public:
  int fsync(int) override { return 0; }
};

// Counts all calls; `before_call` may disturb each. A call is "open", "write" …
class WatchedFileOperations : public UnsyncedCalls {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    return disturbed("open") ? -1 : FileOperations::open(path, flags, mode);
  }
  ssize_t write(int descriptor, const void* bytes, std::size_t size) override {
    size_ = size;
    if (disturbed("write")) return -1;
    const ssize_t written = FileOperations::write(descriptor, bytes, size_);
    after_write();
    return written;
  }
  int ftruncate(int descriptor, off_t size) override {
    return disturbed("ftruncate") ? -1 : FileOperations::ftruncate(descriptor, size);
  }
  int fsync(int descriptor) override { return disturbed("fsync") ? -1 : UnsyncedCalls::fsync(descriptor); }
  int close(int descriptor) override {  // the file is closed even after an error
    const int result = FileOperations::close(descriptor);
    return disturbed("close") ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    return disturbed("rename") ? -1 : FileOperations::rename(from, to);
  }
  int unlink(const char* path) override { return disturbed("unlink") ? -1 : FileOperations::unlink(path); }
  int mkdir(const char* path, mode_t mode) override {
    return disturbed("mkdir") ? -1 : FileOperations::mkdir(path, mode);
  }

  std::vector<std::string> calls;

 protected:
  // 0, or the error number that the call fails with. Of a write, `size_` may be made smaller.
  virtual int before_call(const std::string& call) = 0;
  virtual void after_write() {}
  std::size_t size_ = 0;

 private:
  bool disturbed(const std::string& call) {
    const int code = before_call(call);
    calls.push_back(call);
    if (code != 0) errno = code;
    return code != 0;
  }
};

class CountedCalls : public WatchedFileOperations {
  int before_call(const std::string&) override { return 0; }
};

// Kills the process before the call of this number, or, when it is a write, after half of it.
class KillAtCall : public WatchedFileOperations {
 public:
  KillAtCall(std::size_t number, bool is_torn) : number_(number), is_torn_(is_torn) {}

 private:
  int before_call(const std::string& call) override {
    if (calls.size() != number_) return 0;
    if (call != "write" || !is_torn_) ::raise(SIGKILL);
    size_ = (size_ + 1) / 2;
    is_here_ = true;
    return 0;
  }
  void after_write() override {
    if (is_here_) ::raise(SIGKILL);
  }
  std::size_t number_;
  bool is_torn_, is_here_ = false;
};

// The call of this number fails: only that one, or all later ones of its kind, too.
class FailAtCall : public WatchedFileOperations {
 public:
  FailAtCall(std::size_t number, int code, bool for_good)
      : number_(number), code_(code), for_good_(for_good) {}
  std::string failed;  // the call

 private:
  int before_call(const std::string& call) override {
    if (calls.size() == number_) failed = call;
    const bool is_it = calls.size() == number_ || (for_good_ && !failed.empty() && call == failed);
    return is_it ? code_ : 0;
  }
  std::size_t number_;
  int code_;
  bool for_good_;
};

// Every call is interrupted once before it succeeds, and writes accept at most this many bytes.
class InterruptedCalls : public WatchedFileOperations {
 public:
  explicit InterruptedCalls(std::size_t most_bytes) : most_bytes_(most_bytes) {}

 private:
  int before_call(const std::string& call) override {
    size_ = std::min(size_, most_bytes_);
    const bool can_be = call == "open" || call == "write" || call == "ftruncate" || call == "fsync";
    return can_be && (is_second_ = !is_second_) ? EINTR : 0;
  }
  std::size_t most_bytes_;
  bool is_second_ = false;
};

// Runs `work` in a separate process and returns its exit code, or -1 if a signal ended it. Exceptions give
// the code 99.
template <class Work>
int exit_code_of(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = work();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kindling
