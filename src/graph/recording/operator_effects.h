#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/recording/recording.h"

namespace kindling {

// The effects of a call on memory, as numbers of storages, not sorted.
struct OperatorEffects {
  std::vector<std::size_t> reads{}, writes{}, makes{};
  bool is_view = false;    // its results are views of its arguments
  bool is_random = false;  // it draws from a generator
  bool is_check = false;   // it returns and writes nothing, but may throw
};

OperatorEffects effects_of(const Recording& recording, const OperatorCall& call);

// Returns for each storage whether a call writes to it that has not created it.
std::vector<bool> written_storages(const Recording& recording);

// Returns which calls a replay needs: those that `outputs` (numbers of storages) depend on, and those that
// change external memory, draw random numbers or check something.
std::vector<bool> needed_calls(const Recording& recording, std::span<const OperatorEffects> effects,
                               std::span<const std::size_t> outputs);

}  // namespace kindling
