#include <gtest/gtest.h>

#include <iostream>
#include <thread>

#include "base/folder.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::string refusal_of_lock(const std::filesystem::path& folder) {
  return error_text<Error>([&] { const FolderLock lock(folder); });
}

// A process that holds the lock until it is asked to exit, or is killed.
class Holder {
 public:
  explicit Holder(const std::filesystem::path& folder) {
    EXPECT_EQ(::pipe(ready_), 0);
    id_ = ::fork();
    if (id_ == 0) {
      const FolderLock lock(folder);
      if (::write(ready_[1], "x", 1) == 1) ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }
  ~Holder() {
    for (const int descriptor : ready_) ::close(descriptor);
  }
  pid_t id() const { return id_; }
  void kill() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }

 private:
  int ready_[2];
  pid_t id_;
};

TEST(FolderLock, CanBeWaitedForForALimitedTime) {
  const Scratch scratch;
  Holder holder(scratch.folder());
  const std::string text = error_text<Error>([&] { lock_folder_within(scratch.folder(), 1); });
  EXPECT_NE(text.find("process " + std::to_string(holder.id()) + " is using this folder"), std::string::npos)
      << text;
  std::thread killer([&] { holder.kill(); });
  const FolderLock lock = lock_folder_within(scratch.folder(), 60'000);
  killer.join();
  EXPECT_FALSE(FolderLock::if_free(scratch.folder()));
}

TEST(FolderLock, IsExclusiveWithinAProcess) {
  const Scratch scratch;
  {
    const FolderLock lock(scratch.folder());
    const std::string text = refusal_of_lock(scratch.folder());
    EXPECT_NE(text.find(scratch.folder().string() + ": this process itself (" + std::to_string(::getpid()) +
                        ") is using this folder"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("choose another folder"), std::string::npos) << text;
  }
  EXPECT_EQ(refusal_of_lock(scratch.folder()), "(no error)");
}

TEST(FolderLock, NamesItsHolderAndIsFreeAfterTheHolderIsKilled) {
  const Scratch scratch;
  for (int i = 0; i < 10; ++i) {
    Holder holder(scratch.folder());
    const std::string text = refusal_of_lock(scratch.folder());
    EXPECT_NE(text.find("process " + std::to_string(holder.id()) + " is using this folder"),
              std::string::npos)
        << text;
    holder.kill();
    ASSERT_TRUE(std::filesystem::exists(scratch / ".lock"));  // the stale one
    EXPECT_EQ(refusal_of_lock(scratch.folder()), "(no error)");
  }
  std::cout << "R17: 10 holders killed, 10 locks recovered\n";
}

TEST(FolderLock, IsTakenAgainAfterTheRemovalOfItsFile) {
  const Scratch scratch;
  std::string log;
  set_log_observer([&](LogLevel, const std::string& text) { log += text; });
  FolderLock lock(scratch.folder());
  lock.renew();
  EXPECT_EQ(log, "");
  std::filesystem::remove(scratch / ".lock");
  lock.renew();
  EXPECT_EQ(log, (scratch / ".lock").string() +
                     ": the lock file was removed while this process was using the folder; it has been "
                     "created again");
  EXPECT_NE(refusal_of_lock(scratch.folder()), "(no error)");
  std::filesystem::remove(scratch / ".lock");
  const FolderLock other(scratch.folder());
  EXPECT_NE(error_text<Error>([&] { lock.renew(); }).find("is using this folder"), std::string::npos);
  set_log_observer({});
}

TEST(FolderLock, IsForTheFirstOnly) {
  const Scratch scratch;
  const auto lock = FolderLock::if_free(scratch.folder());
  EXPECT_TRUE(lock);
  EXPECT_FALSE(FolderLock::if_free(scratch.folder()));
  EXPECT_THROW(FolderLock::if_free(scratch / "no"), Error);
}

TEST(FolderLock, ReportsWhyLockingFailed) {
  const Scratch scratch;
  EXPECT_NE(refusal_of_lock(scratch / "no").find("no/.lock: cannot open it: No such file"),
            std::string::npos);
  FailAtCall disk(2, ENOSPC, /*for_good=*/false);  // open, ftruncate, write
  const ScopedFileOperations failing(disk);
  const std::string text = refusal_of_lock(scratch.folder());
  EXPECT_EQ(disk.failed, "write");
  EXPECT_NE(text.find(".lock: cannot write it: No space left"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
