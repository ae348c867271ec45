#include "clock.h"

#include <chrono>
#include <ctime>
#include <iostream>
#include <string>

namespace kindling_bench {
namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

double thread_cpu_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

void Clock::tick() {
  if (started_) stop();
  const int done = static_cast<int>(wall_.size());
  if (gate_ && kWarmup <= done && done < rounds()) {
    std::cout << "ready" << std::endl;
    std::string answer;
    std::getline(std::cin, answer);
  }
  started_ = true;
  wall_start_ = wall_seconds();
  cpu_start_ = cpu_seconds();
  thread_cpu_start_ = thread_cpu_seconds();
}

void Clock::stop() {
  wall_.push_back(wall_seconds() - wall_start_);
  cpu_.push_back(cpu_seconds() - cpu_start_);
  thread_cpu_.push_back(thread_cpu_seconds() - thread_cpu_start_);
  started_ = false;
}

}  // namespace kindling_bench
