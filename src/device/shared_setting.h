#pragma once

#include <mutex>

namespace kindling {

// A setting of the whole process that several may need at once, on threads of their own: the first one keeps
// what it was, the last one puts that back.
template <class Value>
class SharedSetting {
 public:
  using Get = Value (*)();
  using Set = void (*)(const Value&);
  SharedSetting(Get get, Set set) : get_(get), set_(set) {}

  void take(const Value& wanted) {
    const std::lock_guard lock(mutex_);
    if (num_users_++ == 0) former_ = get_();
    set_(wanted);
  }
  void give_back() {
    const std::lock_guard lock(mutex_);
    if (--num_users_ == 0) set_(former_);
  }

 private:
  Get get_;
  Set set_;
  std::mutex mutex_;
  int num_users_ = 0;
  Value former_{};
};

}  // namespace kindling
