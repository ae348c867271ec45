#include "graph/replay/memory_plan.h"

#include <c10/core/alignment.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>

namespace kindling {
namespace {

std::size_t aligned(std::size_t num_bytes) {
  return (num_bytes + c10::gAlignment - 1) / c10::gAlignment * c10::gAlignment;
}

bool at_the_same_moment(const MemoryNeed& one, const MemoryNeed& other) {
  return one.first <= other.last && other.first <= one.last;
}

}  // namespace

MemoryPlan plan_memory(std::span<const MemoryNeed> needs) {
  MemoryPlan plan{.offsets = std::vector<std::size_t>(needs.size())};
  std::vector<std::size_t> by_size(needs.size()), placed;  // the latter by offset
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::greater(), [&](std::size_t i) { return needs[i].num_bytes; });
  const auto offset_of = [&](std::size_t i) { return plan.offsets[i]; };
  for (const std::size_t i : by_size) {
    const std::size_t size = aligned(needs[i].num_bytes);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      if (!at_the_same_moment(needs[i], needs[other])) continue;
      if (offset + size <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(needs[other].num_bytes));
    }
    plan.offsets[i] = offset;
    plan.num_bytes = std::max(plan.num_bytes, offset + size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, offset_of), i);
  }
  return plan;
}

std::size_t most_at_once(std::span<const MemoryNeed> needs) {
  std::map<std::size_t, std::int64_t> changes;  // by time
  for (const MemoryNeed& need : needs) {
    const auto size = static_cast<std::int64_t>(aligned(need.num_bytes));
    changes[need.first] += size;
    changes[need.last + 1] -= size;
  }
  std::int64_t now = 0, most = 0;
  for (const auto& [moment, change] : changes) most = std::max(most, now += change);
  return static_cast<std::size_t>(most);
}

}  // namespace kindling
