// Replaces the operator new of the whole program that it is linked into.
#include "support/allocation_count.h"

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

std::optional<std::int64_t> kindling::num_allocations() { return std::nullopt; }

#else

namespace {
thread_local std::int64_t num_calls = 0;
}

std::optional<std::int64_t> kindling::num_allocations() { return num_calls; }

// The forms for arrays and those that do not throw call this one.
void* operator new(std::size_t size) {
  ++num_calls;
  if (void* const block = std::malloc(size == 0 ? 1 : size)) return block;
  throw std::bad_alloc();
}

void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

#endif
