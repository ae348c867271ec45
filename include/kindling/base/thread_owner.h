#pragma once

#include <atomic>
#include <cstdint>

namespace kindling {

// Knows which thread is using an object that only one thread at a time may use; see ThreadUse, which is
// private to the library. A copy of the object is used by nobody.
class ThreadOwner {
 public:
  ThreadOwner() = default;
  ThreadOwner(const ThreadOwner&) noexcept {}
  ThreadOwner& operator=(const ThreadOwner&) noexcept { return *this; }

 private:
  friend class ThreadUse;
  std::atomic<const void*> thread_{nullptr};  // an address that is the thread's own; nullptr: nobody
  std::atomic<const char*> call_{nullptr};    // what it does, a static text
  std::int64_t depth_ = 0;                    // of nested uses; the owner's alone
};

}  // namespace kindling
