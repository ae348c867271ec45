#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kindling {

// A piece of memory that is needed from one time to another, both included.
struct MemoryNeed {
  std::size_t num_bytes, first, last;
};

// The offsets of pieces in one block, such that pieces needed at the same time do not overlap.
struct MemoryPlan {
  std::vector<std::size_t> offsets;  // one per need, in bytes, aligned like LibTorch's memory
  std::size_t num_bytes = 0;
};

// Plans greedily: the largest pieces first, each at the lowest free offset.
MemoryPlan plan_memory(std::span<const MemoryNeed> needs);

// Returns the lower bound of every plan: the most memory that is needed at one time.
std::size_t most_at_once(std::span<const MemoryNeed> needs);

}  // namespace kindling
