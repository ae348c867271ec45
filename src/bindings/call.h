#pragma once

#include <cfenv>
#include <memory>
#include <string>

#include "kindling/base/error.h"
#include "kindling_c.h"

namespace kindling::bindings {

// An error with a status of its own.
class StatusError : public Error {
 public:
  StatusError(kindling_status status, ErrorParts parts) : Error(std::move(parts)), status_(status) {}
  kindling_status status() const noexcept { return status_; }

 private:
  kindling_status status_;
};

// A wrong call: null, a freed handle, an unknown number.
[[noreturn]] void refuse_use(const std::string& place, const std::string& found, const std::string& wanted,
                             const std::string& remedy = "");
// Throws it for a null pointer; `argument` is its name.
void require_pointer(const void* pointer, const char* place, const char* argument);

// For its lifetime, floating point works as LibTorch expects, in this thread and in those of OpenMP, and
// OpenMP has the number of threads that LibTorch has chosen; then both are as the caller of the outermost
// call had them. Threads that start meanwhile begin with the environment of this thread.
class CallScope {
 public:
  CallScope() noexcept;
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  friend class CallerScope;
  void enter_openmp() noexcept;
  void leave_openmp() noexcept;

  std::fenv_t callers_;
  CallScope* const outer_;
  int callers_threads_ = 0;
  std::unique_ptr<std::fenv_t[]> pool_;  // environments of OpenMP's threads; null: not changed
  int pool_size_ = 0;
};

// Says that a trainer uses this number of threads.
void use_threads(int number) noexcept;

// For its lifetime, while a callback runs: the floating-point environment of the caller, and what the
// callback changes in it.
class CallerScope {
 public:
  CallerScope() noexcept;
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  CallScope* const scope_;
};

// Keeps the exception being handled as the error of this thread and returns its status.
kindling_status keep_error(const char* place) noexcept;

// Runs what a function of the interface does: nothing leaves it but a status.
template <class Body>
kindling_status call(const char* place, const Body& body) noexcept {
  const CallScope scope;
  try {
    body();
    return KINDLING_OK;
  } catch (...) {
    return keep_error(place);
  }
}

}  // namespace kindling::bindings
