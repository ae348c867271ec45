#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/recording.h"

namespace kindling {

// What a call does to memory; numbers of storages, not sorted.
struct OperatorEffects {
  std::vector<std::size_t> reads{}, writes{}, makes{};
  bool is_view = false;    // its results are its arguments, seen otherwise
  bool is_random = false;  // it draws from a generator
};

OperatorEffects effects_of(const Recording& recording, const OperatorCall& call);

// Which calls a replay needs: those that `outputs` (numbers of storages) come from, that change external
// memory, or that draw random numbers.
std::vector<bool> needed_calls(const Recording& recording, std::span<const OperatorEffects> effects,
                               std::span<const std::size_t> outputs);

}  // namespace kindling
