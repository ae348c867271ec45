#pragma once
// See algorithm.h.
#include <chrono>
#include <memory>

namespace gloo {
namespace transport {
class Device;
}
class Context {
 public:
  std::shared_ptr<transport::Device>& getDevice();
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};
}  // namespace gloo
