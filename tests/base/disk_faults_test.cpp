// Errors of the disk at every system call of an atomic write.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <iostream>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::string kOldText = "old", kNewText(3000, 'n');

void write_new_text(const std::filesystem::path& path) {
  const std::string_view text = kNewText;
  const std::string_view pieces[] = {text.substr(0, 1000), text.substr(1000, 1), "", text.substr(1001)};
  write_file_atomically(path, pieces);
}

std::vector<std::string> calls_of_a_write(const std::filesystem::path& path) {
  CountedCalls calls;
  const ScopedFileOperations counted(calls);
  write_new_text(path);
  return calls.calls;
}

std::size_t entries_of(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(DiskFaults, OccurInTheOrderOfADurableWrite) {
  const Scratch scratch;
  EXPECT_EQ(calls_of_a_write(scratch / "x"),
            (std::vector<std::string>{"open", "write", "write", "write", "fsync", "close", "rename",  //
                                      "open", "fsync", "close"}));
}

void expect_a_whole_file(const std::filesystem::path& path, const std::string& failed, bool has_thrown) {
  const std::string text = read_file(path, 10'000);
  if (!has_thrown) {
    EXPECT_EQ(failed, "close");  // that of the directory, which has been synced
  }
  EXPECT_TRUE(text == kOldText || text == kNewText) << failed << ", " << text.size() << " bytes";
  EXPECT_EQ(entries_of(path.parent_path()), 1u) << failed;
}

TEST(DiskFaults, LeaveTheFileIntactAtEveryCall) {
  const Scratch scratch;
  const std::vector<std::string> calls = calls_of_a_write(scratch / "x");
  const std::size_t renamed = std::size_t(std::ranges::find(calls, "rename") - calls.begin());
  std::size_t tries = 0;
  for (const int code : {ENOSPC, EIO, EDQUOT, EROFS})
    for (const bool for_good : {false, true})
      for (std::size_t number = 0; number < calls.size(); ++number, ++tries) {
        write_file_atomically(scratch / "x", kOldText);
        FailAtCall disk(number, code, for_good);
        std::string error;
        {
          const ScopedFileOperations failing(disk);
          error = error_text<Error>([&] { write_new_text(scratch / "x"); });
        }
        expect_a_whole_file(scratch / "x", disk.failed, error != "(no error)");
        if (number <= renamed) {
          EXPECT_EQ(read_file(scratch / "x", 10'000), kOldText) << disk.failed;
          EXPECT_TRUE(error.starts_with((scratch / "x").string() + ": cannot ")) << error;
        }
        if (number <= renamed && (code == ENOSPC || code == EDQUOT)) {
          EXPECT_NE(error.find("needed 3000 bytes, free "), std::string::npos) << error;
        }
      }
  std::cout << "R4: " << tries << " errors at " << calls.size() << " system calls\n";
}

TEST(DiskFaults, DoNotIncludeInterruptionsAndShortWrites) {
  const Scratch scratch;
  std::size_t calls = 0;
  for (const std::size_t most_bytes : {1, 7, 999, 5000}) {
    write_file_atomically(scratch / "x", kOldText);
    InterruptedCalls interrupted(most_bytes);
    {
      const ScopedFileOperations in_force(interrupted);
      write_new_text(scratch / "x");
    }
    calls += interrupted.calls.size();
    EXPECT_EQ(read_file(scratch / "x", 10'000), kNewText) << most_bytes;
    EXPECT_EQ(entries_of(scratch.folder()), 1u);
  }
  std::cout << "R4: " << calls << " calls interrupted or cut short\n";
}

// The child with a file system of 64 KB; returns 0 on success, 77 if it must not mount one.
int try_a_full_disk(const std::filesystem::path& folder) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") != 0)
    return 77;
  write_file_atomically(folder / "x", std::string(20'000, 'o'));
  const std::string text =
      error_text<Error>([&] { write_file_atomically(folder / "x", std::string(100'000, 'n')); });
  const std::size_t free = std::filesystem::space(folder).available;
  if (text.find("No space left on device (needed 100000 bytes, free " + std::to_string(free) + ")") ==
      std::string::npos)
    return 1;
  if (read_file(folder / "x", 100'000) != std::string(20'000, 'o')) return 2;
  if (entries_of(folder) != 1) return 3;
  write_file_atomically(folder / "x", std::string(20'000, 'n'));  // this one fits again
  return free > 0 ? 0 : 4;
}

TEST(DiskFaults, NameAFullDiskWithItsFreeBytes) {
  const Scratch scratch;
  const int code = exit_code_of([&] { return try_a_full_disk(scratch.folder()); });
  if (code == 77) GTEST_SKIP() << "mounting a file system of 64 KB is not allowed here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace kindling
