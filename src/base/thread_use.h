#pragma once

#include <utility>

#include "kindling/base/thread_owner.h"

namespace kindling {

// While it lives, this thread uses an object; uses of one thread may be nested. The object outlives it.
class ThreadUse {
 public:
  // `call`: what this thread is about to do, a static text. If another thread is using the object, calls
  // `refuse` with what that one does ("Trainer::fit"), which throws.
  template <class Refuse>
  ThreadUse(ThreadOwner& owner, const char* call, const Refuse& refuse) : owner_(owner) {
    if (const char* other = enter(); other != nullptr) refuse(other);
    if (owner_.depth_++ == 0) owner_.call_.store(call, std::memory_order_relaxed);
  }
  ~ThreadUse() {
    if (--owner_.depth_ > 0) return;
    owner_.call_.store(nullptr, std::memory_order_relaxed);
    owner_.thread_.store(nullptr, std::memory_order_release);
  }
  ThreadUse(const ThreadUse&) = delete;
  ThreadUse& operator=(const ThreadUse&) = delete;

 private:
  // Returns nullptr if the object is this thread's now, else what the other one does.
  const char* enter() noexcept {
    thread_local char own = 0;
    const void* before = nullptr;
    if (owner_.thread_.compare_exchange_strong(before, &own, std::memory_order_acquire) || before == &own)
      return nullptr;
    const char* const call = owner_.call_.load(std::memory_order_relaxed);
    return call != nullptr ? call : "another call";
  }

  ThreadOwner& owner_;
};

}  // namespace kindling
