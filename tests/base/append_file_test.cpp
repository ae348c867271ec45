#include <gtest/gtest.h>
#include <sys/stat.h>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(AppendFile, TruncatesToTheEndOfALine) {
  const Scratch scratch;
  AppendFile file(scratch / "log");
  file.append("1\n22\n333\n");
  file.cut_to(5);
  file.append("4\n");
  EXPECT_EQ(read_file(scratch / "log", 100), "1\n22\n4\n");
  file.cut_to(7);
  EXPECT_EQ(read_file(scratch / "log", 100), "1\n22\n4\n");
  file.cut_to(0);
  EXPECT_EQ(read_file(scratch / "log", 100), "");
}

TEST(AppendFile, RefusesToTruncateWithinALine) {
  const Scratch scratch;
  AppendFile file(scratch / "log");
  file.append("1\n22\n");
  const std::string inside = error_text<Error>([&] { file.cut_to(3); });
  EXPECT_NE(inside.find("log, byte 3: no line ends at this byte; expected: the end of a line"),
            std::string::npos)
      << inside;
  const std::string beyond = error_text<Error>([&] { file.cut_to(6); });
  EXPECT_NE(beyond.find("the file ends after 5 bytes"), std::string::npos) << beyond;
  EXPECT_EQ(read_file(scratch / "log", 100), "1\n22\n");
}

// The name of a new file is an entry of its directory, which needs a separate sync, once.
TEST(AppendFile, SyncsTheFileAndItsNameOnce) {
  const Scratch scratch;
  AppendFile file(scratch / "log");
  file.append("1\n");
  CountedCalls calls;
  const ScopedFileOperations watched(calls);
  file.sync();
  EXPECT_EQ(calls.calls, (std::vector<std::string>{"fsync", "open", "fsync", "close"}));
  calls.calls.clear();
  file.sync();
  EXPECT_EQ(calls.calls, std::vector<std::string>{"fsync"});
}

class ChangedAppendFile : public testing::Test {
 protected:
  ChangedAppendFile() {
    set_log_observer([this](LogLevel, const std::string& text) { log_ += text + "\n"; });
    file_.append("1\n22\n");
    file_.sync();
  }
  ~ChangedAppendFile() override { set_log_observer({}); }

  const Scratch scratch_;
  const std::filesystem::path path_ = scratch_ / "log";
  AppendFile file_{path_};
  std::string log_;
};

TEST_F(ChangedAppendFile, IsWrittenAgainAfterItsRemoval) {
  std::filesystem::remove(path_);
  file_.append("333\n");
  file_.sync();
  file_.append("4\n");
  file_.sync();
  EXPECT_EQ(read_file(path_, 100), "1\n22\n333\n4\n");
  EXPECT_EQ(log_, path_.string() +
                      ": the file was removed while it was being written; it has been written again\n");
}

TEST_F(ChangedAppendFile, ContinuesInTheFileThatHasReplacedIt) {
  write_file_atomically(path_, "mine\n");
  file_.append("333\n");
  file_.sync();
  file_.append("4\n");
  EXPECT_EQ(read_file(path_, 100), "mine\n4\n");
  EXPECT_NE(log_.find("another file has replaced it"), std::string::npos) << log_;
}

TEST(AppendFile, ThrowsIfASyncFails) {
  const Scratch scratch;
  AppendFile file(scratch / "log");
  FailAtCall disk(0, EIO, /*for_good=*/false);
  const ScopedFileOperations failing(disk);
  const std::string text = error_text<Error>([&] { file.sync(); });
  EXPECT_NE(text.find((scratch / "log").string() + ": cannot sync it: "), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
