#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kindling {

// A piece of memory that is needed from one moment to another, both included.
struct MemoryNeed {
  std::size_t num_bytes, first, last;
};

// Where pieces lie in one block, so that those which are needed at the same moment do not overlap.
struct MemoryPlan {
  std::vector<std::size_t> offsets;  // of the needs, in bytes, aligned as LibTorch's memory is
  std::size_t num_bytes = 0;
};

// The largest pieces choose first, each takes the lowest place that is free.
MemoryPlan plan_memory(std::span<const MemoryNeed> needs);

// What no plan can do with less than: the most that is needed at one moment.
std::size_t most_at_once(std::span<const MemoryNeed> needs);

}  // namespace kindling
