#pragma once

#include <string>
#include <vector>

#include "measurements/timing.h"

namespace kindling {

// Exercise 4 of the textbook: two products of n×n matrices, one after the other in one place against both at
// once in two.
struct PairResult {
  std::vector<Device> places{};  // two cards; or the CPU alone: two workers of one thread each
  std::int64_t n = 0;
  Timing in_sequence{}, at_once{};

  double speed_up() const { return in_sequence.median_s / at_once.median_s; }  // 2 is all one can hope for
};

// On the first two of `cards`, or with fewer than two of them on the CPU's workers. Throws Error when the two
// ways give different products. The number of threads of LibTorch's operators is afterwards what it was.
PairResult measure_pair(const std::vector<Device>& cards, std::int64_t n, const TimingOptions& timing);

}  // namespace kindling
