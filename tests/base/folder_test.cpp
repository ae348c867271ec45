#include "base/folder.h"

#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Calls = std::vector<std::string>;

Calls calls_of(const std::filesystem::path& folder) {
  CountedCalls calls;
  const ScopedFileOperations counted(calls);
  create_folders_durably(folder);
  return calls.calls;
}

// A name is made durable by a sync of the folder that it is in. That of the deepest folder that exists is
// synced too, because a process may have been killed between creating and syncing.
TEST(CreateFoldersDurably, SyncsTheParentOfEachFolder) {
  const Scratch scratch;
  const Calls existing{"open", "fsync", "close"}, made{"mkdir", "open", "fsync", "close"};
  Calls expected = existing;
  for (int i = 0; i < 3; ++i) expected.insert(expected.end(), made.begin(), made.end());
  EXPECT_EQ(calls_of(scratch / "runs/small/0001"), expected);
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "runs/small/0001"));
  EXPECT_EQ(calls_of(scratch / "runs/small/0001/"), (Calls{"open", "fsync", "close",  // runs, for small
                                                           "mkdir", "open", "fsync", "close"}));
}

TEST(CreateFoldersDurably, FailsAtEveryCallThatFails) {
  const Scratch scratch;
  for (const std::size_t call : {1, 3, 5, 7, 9}) {  // fsync and mkdir
    FailAtCall disk(call, EIO, /*for_good=*/false);
    const ScopedFileOperations failing(disk);
    const std::string text = error_text<Error>([&] { create_folders_durably(scratch / "a/b"); });
    EXPECT_NE(text.find(disk.failed == "mkdir" ? ": cannot make it: " : ": cannot sync it: "),
              std::string::npos)
        << call << ": " << text;
    std::filesystem::remove_all(scratch / "a");
  }
}

TEST(CreateFoldersDurably, NamesTheFileInTheWay) {
  const Scratch scratch;
  write_file_atomically(scratch / "runs", "text");
  EXPECT_NE(error_text<Error>([&] { create_folders_durably(scratch / "runs"); }).find("runs: it is a file"),
            std::string::npos);
  EXPECT_NE(error_text<Error>([&] { create_folders_durably(scratch / "runs/small"); }).find("it is a file"),
            std::string::npos);
}

TEST(CreateNewFolderDurably, SaysWhetherTheNameIsTaken) {
  const Scratch scratch;
  EXPECT_TRUE(create_new_folder_durably(scratch / "a"));
  EXPECT_FALSE(create_new_folder_durably(scratch / "a"));
}

}  // namespace
}  // namespace kindling
