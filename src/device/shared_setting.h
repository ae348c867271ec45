#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace kindling {

// A process-wide setting that several users may change at once, nested or on different threads: the latest
// value applies, and the last user restores the original one.
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
