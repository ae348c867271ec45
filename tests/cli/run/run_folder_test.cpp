#include "cli/run/run_folder.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "support/scratch.h"

namespace kindling {
namespace {

TEST(RunFolder, IsNeverSharedByRunsThatStartAtOnce) {
  const Scratch scratch;
  std::mutex mutex;
  std::set<std::filesystem::path> made;
  std::vector<std::thread> runs;
  for (int i = 0; i < 8; ++i)
    runs.emplace_back([&] {
      for (int j = 0; j < 25; ++j) {
        const RunFolder folder(scratch.folder(), "same");
        const std::lock_guard lock(mutex);
        made.insert(folder.path());
      }
    });
  for (std::thread& run : runs) run.join();
  EXPECT_EQ(made.size(), 8u * 25u);
  EXPECT_EQ(made.rbegin()->filename(), "0200");  // and no number is left out
}

}  // namespace
}  // namespace kindling
