// Memory that a search must not use.
#include "training/tuner/memory_reservation.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "support/memory_limit.h"

namespace kindling {
namespace {

bool can_take(std::size_t bytes) {
  void* const block = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block != MAP_FAILED && ::munmap(block, bytes) == 0;
}

std::int64_t num_pages() {
  std::int64_t pages = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(statm, "%ld", &pages) != 1) pages = 0;
    std::fclose(statm);
  }
  return pages;
}

// In a process of its own, with 256 MB: between what is left of them by a half and by nothing lie 192.
TEST(MemoryReservation, HoldsAFractionOfTheMemoryBelowALimit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs its own address space";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    limit_further_memory(256U << 20U);
    constexpr std::size_t kMost = 192U << 20U, kLess = 96U << 20U;
    const bool before = can_take(kMost);
    std::optional<MemoryReservation> held(std::in_place, cpu(), 0.5);
    const bool most = can_take(kMost), less = can_take(kLess);
    held.reset();
    ::_exit(before && !most && less && can_take(kMost) ? 0 : 10 + 4 * before + 2 * most + less);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(MemoryReservation, HoldsNothingOnTheHostWithoutALimit) {
  const auto before = num_pages();
  const MemoryReservation held(cpu(), 0.5);
  EXPECT_LT(num_pages() - before, 256);  // 1 MiB: what the asking itself takes
}

}  // namespace
}  // namespace kindling
