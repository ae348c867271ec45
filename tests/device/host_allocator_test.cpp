#include "device/host_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/scratch.h"

namespace kindling {
namespace {

TEST(HostAllocator, AlignsBlocksOfAllSizes) {
  std::vector<c10::DataPtr> blocks;
  for (std::size_t size = 1; size < 3'000'000; size += 1 + size / 3) {
    blocks.push_back(host_allocator().allocate(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 64, 0u) << size;
    std::memset(blocks.back().mutable_get(), 1, size);
  }
}

TEST(HostAllocator, ReturnsItsMemoryLikeLibTorchs) {
  EXPECT_EQ(host_allocator().allocate(0).get(), nullptr);
  void* const data = host_allocator().raw_allocate(100);
  std::memset(data, 1, 100);
  host_allocator().raw_deallocate(data);
  const auto copy = host_allocator().clone("text", 5);
  EXPECT_STREQ(static_cast<const char*>(copy.get()), "text");
}

TEST(HostAllocator, ThrowsLibTorchsErrors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer ends a process that asks for too much";
#endif
  for (const std::size_t size : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 62}) {
    const auto error_of = [&](c10::Allocator& allocator) {
      const std::string text = error_text<c10::Error>([&] { allocator.allocate(size); });
      return text.substr(0, text.find("\nframe"));  // without the calls
    };
    EXPECT_EQ(error_of(host_allocator()), error_of(*c10::GetDefaultCPUAllocator()));
  }
}

#ifdef __GLIBC__
TEST(HostAllocator, ReusesAFreedBlockForTheNextOneOfItsSize) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps what has been freed";
#endif
  constexpr std::size_t kSize = 100'000;  // not mapped separately
  std::vector<c10::DataPtr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(host_allocator().allocate(kSize));
  const void* const freed = blocks[4].get();
  blocks[4] = {};
  EXPECT_EQ(host_allocator().allocate(kSize).get(), freed);
}
#endif

}  // namespace
}  // namespace kindling
