#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace kindling {

// A setting of the whole process that several may need at once, one inside of the other or on threads of
// their own: what the latest of them wants holds, and what it was comes back with the last one.
template <class Value>
class SharedSetting {
 public:
  using Get = Value (*)();
  using Set = void (*)(const Value&);
  using Ticket = std::uint64_t;
  SharedSetting(Get get, Set set) : get_(get), set_(set) {}

  Ticket take(const Value& wanted) {
    const std::lock_guard lock(mutex_);
    if (users_.empty()) former_ = get_();
    set_(wanted);
    users_.emplace(++latest_, wanted);
    return latest_;
  }
  void give_back(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    users_.erase(ticket);
    set_(users_.empty() ? former_ : users_.rbegin()->second);
  }

 private:
  Get get_;
  Set set_;
  std::mutex mutex_;
  std::map<Ticket, Value> users_;
  Ticket latest_ = 0;
  Value former_{};
};

}  // namespace kindling
