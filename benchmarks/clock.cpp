#include "clock.h"

#include <chrono>
#include <ctime>
#include <iostream>
#include <string>

namespace kindling_bench {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Clock::tick() {
  if (started_) {
    wall_.push_back(wall_seconds() - wall_start_);
    cpu_.push_back(cpu_seconds() - cpu_start_);
  }
  const int done = static_cast<int>(wall_.size());
  if (gate_ && kWarmup <= done && done < rounds()) {
    std::cout << "ready" << std::endl;
    std::string answer;
    std::getline(std::cin, answer);
  }
  started_ = true;
  wall_start_ = wall_seconds();
  cpu_start_ = cpu_seconds();
}

}  // namespace kindling_bench
