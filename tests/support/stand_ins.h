// Stand-ins for NVIDIA's libraries (stand_in_*.cpp).
#pragma once

#include <cstdlib>
#include <string>

namespace kindling {

inline const std::string kStandInNvml = KINDLING_STAND_INS "/libnvidia-ml.so.1";
inline const std::string kStandInCuda = KINDLING_STAND_INS "/libcuda.so.1";

// A variable of the environment, for the life of the object.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() { ::unsetenv(name_.c_str()); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
};

}  // namespace kindling
