#pragma once

#include <typeinfo>
#include <utility>

namespace kindling {

struct HostCallerName {
  const char* what = nullptr;            // a static text; nullptr: the library
  const std::type_info* type = nullptr;  // of the object that is called, if it has a class of its own
  bool operator==(const HostCallerName&) const = default;
};

// While it lives, what makes the host wait on this thread is attributed to code of the user: "training_step",
// or a class such as a callback. The library's own work runs outside of all such scopes.
class HostCaller {
 public:
  using Name = HostCallerName;

  explicit HostCaller(const char* what, const std::type_info* type = nullptr)
      : former_(std::exchange(current_, {what, type})) {}
  ~HostCaller() { current_ = former_; }
  HostCaller(const HostCaller&) = delete;
  HostCaller& operator=(const HostCaller&) = delete;

  static Name current() noexcept { return current_; }

  static constexpr const char* kTrainingStep = "training_step";
  static constexpr const char* kBackward = "backward";
  static constexpr const char* kCallback = "the callback";
  static constexpr const char* kOptimizer = "the optimizer";

 private:
  inline static thread_local Name current_{};
  Name former_;
};

}  // namespace kindling
