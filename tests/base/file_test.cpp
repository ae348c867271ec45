#include "kindling/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/file_replacement.h"
#include "kindling/base/error.h"
#include "support/file_size_limit.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr std::size_t kMax = 1 << 20;

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(ReadFile, ReturnsTheWrittenBytes) {
  const Scratch scratch;
  const std::string bytes("a\0b\n\xff", 5);
  write_file_atomically(scratch / "x.bin", bytes);
  EXPECT_EQ(read_file(scratch / "x.bin", kMax), bytes);
  write_file_atomically(scratch / "x.bin", "");
  EXPECT_EQ(read_file(scratch / "x.bin", kMax), "");
}

TEST(ReadFile, ReadsUpToTheMaximumAndRefusesMore) {
  const Scratch scratch;
  write_file_atomically(scratch / "x", "12345");
  EXPECT_EQ(read_file(scratch / "x", 5), "12345");
  EXPECT_NE(
      error_text<Error>([&] { read_file(scratch / "x", 4); }).find("too large; expected: at most 4 bytes"),
      std::string::npos);
}

TEST(ReadFile, ReadsPipesUpToTheMaximum) {
  const Scratch scratch;
  const std::filesystem::path pipe = scratch / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string bytes(10'000, 'x');
  for (const std::size_t max_bytes : {bytes.size(), bytes.size() - 1}) {
    std::thread writer([&] { std::ofstream(pipe) << bytes; });
    if (max_bytes == bytes.size()) {
      EXPECT_EQ(read_file(pipe, max_bytes), bytes);
    } else {
      EXPECT_THROW(read_file(pipe, max_bytes), Error);
    }
    writer.join();
  }
}

TEST(ReadFile, NamesPathReasonAndHint) {
  const Scratch scratch;
  const std::filesystem::path missing = scratch / "missing";
  EXPECT_EQ(error_text<Error>([&] { read_file(missing, kMax); }),
            missing.string() + ": cannot open it: No such file or directory; check the path");
  EXPECT_EQ(error_text<Error>([&] { read_file(missing / "file", kMax); }),
            (missing / "file").string() +
                ": cannot open it: No such file or directory; check the path; its folder must exist");
  EXPECT_NE(
      error_text<Error>([&] { read_file(scratch.folder(), kMax); }).find("it is a folder; expected: a file"),
      std::string::npos);
  EXPECT_NE(error_text<Error>([&] { read_file("/dev/null", kMax); }).find("it is a device"),
            std::string::npos);
}

TEST(InputFile, IsReadInPieces) {
  const Scratch scratch;
  write_file_atomically(scratch / "x", "0123456789");
  const InputFile file(scratch / "x");
  EXPECT_EQ(file.size(), 10u);
  std::string middle(4, ' ');
  file.read(3, middle.data(), middle.size());
  EXPECT_EQ(middle, "3456");
  file.read(10, nullptr, 0);
  const std::string text = error_text<Error>([&] { file.read(8, middle.data(), 4); });
  EXPECT_NE(text.find("x, byte 10: the file ends here; expected: 2 more bytes"), std::string::npos) << text;
}

TEST(InputFile, RefusesAllButRegularFiles) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::filesystem::path& path) {
    return error_text<Error>([&] { const InputFile file(path); });
  };
  EXPECT_NE(refusal(scratch / "pipe").find("it is a pipe; expected: a file"), std::string::npos);
  EXPECT_NE(refusal(scratch.folder()).find("it is a folder"), std::string::npos);
  EXPECT_NE(refusal(scratch / "no").find("No such file"), std::string::npos);
}

TEST(WriteFileAtomically, ReplacesAndLeavesNothingElse) {
  const Scratch scratch;
  write_file_atomically(scratch / "x", "old");
  write_file_atomically(scratch / "x", "new");
  EXPECT_EQ(read_file(scratch / "x", kMax), "new");
  EXPECT_EQ(files_in(scratch.folder()), 1u);
}

TEST(WriteFileAtomically, OverwritesAStrayTemporaryFile) {
  const Scratch scratch;
  const std::string stray = ".x.tmp." + std::to_string(::getpid());
  std::ofstream(scratch / stray) << "a long rest of a killed process";
  write_file_atomically(scratch / "x", "new");
  EXPECT_EQ(read_file(scratch / "x", kMax), "new");
  EXPECT_EQ(files_in(scratch.folder()), 1u);
}

// Process 4194305 cannot exist: it is beyond the largest number that Linux allows.
TEST(DeleteStaleTemporaryFiles, TakesThoseOfDeadProcesses) {
  const Scratch scratch;
  const std::string alive = ".x.tmp." + std::to_string(::getppid());
  const std::vector<std::string> stale{".x.tmp.4194305", ".a.tmp.b.tmp.4194305",
                                       ".x.tmp." + std::to_string(::getpid())},
      others{alive, "x", ".x.tmp.", ".x.tmp.4194305x", "x.tmp.4194305", ".tmp.4194305", ".x.tmp.-1"};
  for (const auto* names : {&stale, &others})
    for (const std::string& name : *names) std::ofstream(scratch / name) << "text";
  delete_stale_temporary_files(scratch.folder(), "y");
  EXPECT_EQ(files_in(scratch.folder()), stale.size() + others.size());
  delete_stale_temporary_files(scratch.folder(), "a.tmp.b");
  EXPECT_FALSE(std::filesystem::exists(scratch / stale[1]));
  EXPECT_EQ(files_in(scratch.folder()), stale.size() + others.size() - 1);
  delete_stale_temporary_files(scratch.folder());
  EXPECT_EQ(files_in(scratch.folder()), others.size());
  for (const std::string& name : others) EXPECT_TRUE(std::filesystem::exists(scratch / name)) << name;
  delete_stale_temporary_files(scratch / "no");
}

TEST(WriteFileAtomically, KeepsTheOldFileIfTheDiskIsFull) {
  const Scratch scratch;
  write_file_atomically(scratch / "x", "old");
  {
    const FileSizeLimit limit(1000);
    const std::string text =
        error_text<Error>([&] { write_file_atomically(scratch / "x", std::string(5000, 'n')); });
    EXPECT_NE(text.find((scratch / "x").string() + ": cannot write it: File too large"), std::string::npos)
        << text;
  }
  EXPECT_EQ(read_file(scratch / "x", kMax), "old");
  EXPECT_EQ(files_in(scratch.folder()), 1u);
}

TEST(FileReplacement, ReplacesTheFileAtItsEndOnly) {
  const Scratch scratch;
  write_file_atomically(scratch / "x", "old");
  {
    FileReplacement unfinished(scratch / "x");
    unfinished.append("new");
    EXPECT_EQ(read_file(unfinished.temporary_path(), kMax), "new");
  }
  EXPECT_EQ(read_file(scratch / "x", kMax), "old");
  EXPECT_EQ(files_in(scratch.folder()), 1u);
  FileReplacement finished(scratch / "x");
  finished.append("n");
  finished.append("ew");
  EXPECT_EQ(read_file(scratch / "x", kMax), "old");
  finished.finish();
  EXPECT_EQ(read_file(scratch / "x", kMax), "new");
  EXPECT_EQ(files_in(scratch.folder()), 1u);
  FileReplacement by_others(scratch / "x");
  write_text(by_others.temporary_path(), "other");
  by_others.finish();
  EXPECT_EQ(read_file(scratch / "x", kMax), "other");
}

TEST(WriteFileAtomically, RefusesMissingAndConflictingFolders) {
  const Scratch scratch;
  EXPECT_NE(error_text<Error>([&] { write_file_atomically(scratch / "no/x", "new"); }).find("No such file"),
            std::string::npos);
  std::filesystem::create_directory(scratch / "folder");
  EXPECT_NE(
      error_text<Error>([&] { write_file_atomically(scratch / "folder", "new"); }).find("Is a directory"),
      std::string::npos);
  EXPECT_EQ(files_in(scratch.folder()), 1u);
}

TEST(AppendFile, AppendsToAnExistingFile) {
  const Scratch scratch;
  AppendFile(scratch / "log").append("1\n");
  AppendFile file(scratch / "log");
  file.append("2\n");
  file.append("3\n4\n");
  EXPECT_EQ(read_file(scratch / "log", kMax), "1\n2\n3\n4\n");
}

TEST(AppendFile, RemovesAnIncompleteLastLine) {
  const Scratch scratch;
  for (const std::string torn : {"1\n2\n{\"epo", "1\n2\n"}) {
    write_file_atomically(scratch / "log", torn);
    AppendFile(scratch / "log").append("3\n");
    EXPECT_EQ(read_file(scratch / "log", kMax), "1\n2\n3\n");
  }
  write_file_atomically(scratch / "log", "torn");
  AppendFile(scratch / "log").append("1\n");
  EXPECT_EQ(read_file(scratch / "log", kMax), "1\n");
}

TEST(AppendFile, LeavesNoPartialLineIfTheDiskIsFull) {
  const Scratch scratch;
  AppendFile file(scratch / "log");
  file.append("1\n");
  {
    const FileSizeLimit limit(10);
    EXPECT_THROW(file.append("a line longer than that\n"), Error);
  }
  file.append("2\n");
  EXPECT_EQ(read_file(scratch / "log", kMax), "1\n2\n");
}

TEST(AppendFile, RefusesAMissingFolder) {
  const Scratch scratch;
  EXPECT_THROW(AppendFile(scratch / "no/log"), Error);
}

}  // namespace
}  // namespace kindling
