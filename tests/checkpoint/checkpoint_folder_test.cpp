#include "kindling/checkpoint/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "checkpoint/saved_states.h"
#include "kindling/base/log.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::string refusal_of_folder(const std::filesystem::path& path) {
  return error_text<CheckpointError>([&] { const CheckpointFolder folder(path, {}); });
}

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

// Collects the warnings of the log while it exists.
class Warnings {
 public:
  Warnings() {
    configure_log({.level = LogLevel::warning});
    set_log_observer([this](LogLevel, const std::string& text) { texts.push_back(text); });
  }
  ~Warnings() {
    set_log_observer({});
    configure_log({.level = LogLevel::off});
  }
  std::vector<std::string> texts;
};

// Runs `call` as a user other than root, who may do everything; returns 0 if `call` returns true.
int as_nobody(const std::function<bool()>& call) {
  return exit_code_of([&] {
    if (::getuid() == 0 && ::setuid(65534) != 0) return 98;
    return call() ? 0 : 1;
  });
}

TEST(CheckpointFolder, IsCreatedIfMissing) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch / "checkpoints/", {});
  EXPECT_EQ(names_in(scratch / "checkpoints"), std::vector<std::string>{".lock"});
  EXPECT_EQ(folder.file_of(120).filename(), "step-00000120.safetensors");
  EXPECT_EQ(folder.file_of(123'456'789'012).filename(), "step-123456789012.safetensors");
}

TEST(CheckpointFolder, IsDurableOnceCreated) {
  const Scratch scratch;
  CountedCalls calls;
  const ScopedFileOperations counted(calls);
  const CheckpointFolder folder(scratch / "checkpoints", {});
  calls.calls.resize(4);
  EXPECT_EQ(calls.calls, (std::vector<std::string>{"mkdir", "open", "fsync", "close"}));
}

TEST(CheckpointFolder, IsRefusedAtTheStartIfItCannotBeCreated) {
  const Scratch scratch;
  std::ofstream(scratch / "file") << "x";
  expect_text(refusal_of_folder(scratch / "no/checkpoints"), "cannot make it: No such file or directory");
  expect_text(refusal_of_folder(scratch / "file"), "file: it is a file; expected: a folder");
  expect_text(refusal_of_folder(scratch / "file/checkpoints"), "cannot make it: Not a directory");
  expect_text(refusal_of_folder(""), "cannot make it: No such file or directory");
}

TEST(CheckpointFolder, IsRefusedAtTheStartWithoutPermission) {
  const Scratch scratch;
  using std::filesystem::perms;
  const std::filesystem::path closed = scratch / "closed", with_lock = scratch / "with_lock";
  for (const auto& path : {closed, with_lock}) std::filesystem::create_directory(path);
  std::ofstream(with_lock / ".lock") << "";  // of an earlier run; being able to open it proves nothing
  std::filesystem::permissions(with_lock / ".lock", perms::all);
  for (const auto& path : {closed, with_lock, scratch.folder()})
    std::filesystem::permissions(path, perms::owner_read | perms::owner_exec | perms::group_read |
                                           perms::group_exec | perms::others_read | perms::others_exec);
  for (const auto& path : {closed, with_lock, scratch / "new"}) {
    const auto is_refused = [&] {
      return refusal_of_folder(path).find("Permission denied; check the permissions") != std::string::npos;
    };
    EXPECT_EQ(as_nobody(is_refused), 0) << path;
  }
  EXPECT_EQ(names_in(with_lock), std::vector<std::string>{".lock"});
  for (const auto& path : {closed, with_lock, scratch.folder()})
    std::filesystem::permissions(path, perms::owner_all);
}

// 77: mounting is not permitted.
int try_a_read_only_disk(const std::filesystem::path& folder) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", folder.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0)
    return 77;
  for (const auto& path : {folder, folder / "new"})
    if (refusal_of_folder(path).find("Read-only file system; choose a folder") == std::string::npos) return 1;
  return 0;
}

TEST(CheckpointFolder, IsRefusedAtTheStartOnAReadOnlyDisk) {
  const Scratch scratch;
  const int code = exit_code_of([&] { return try_a_read_only_disk(scratch.folder()); });
  if (code == 77) GTEST_SKIP() << "mounting a read-only file system is not allowed here";
  EXPECT_EQ(code, 0);
}

TEST(CheckpointFolder, IsRefusedIfTheDiskIsFullAtTheStart) {
  const Scratch scratch;
  CountedCalls calls;
  {
    const ScopedFileOperations counted(calls);
    const CheckpointFolder folder(scratch.folder(), {});
  }
  const auto last_write = std::ranges::find(calls.calls.rbegin(), calls.calls.rend(), "write");
  FailAtCall disk(static_cast<std::size_t>(calls.calls.rend() - last_write) - 1, ENOSPC, false);
  const ScopedFileOperations failing(disk);
  expect_text(refusal_of_folder(scratch.folder()), "No space left on device");
  EXPECT_EQ(names_in(scratch.folder()), std::vector<std::string>{".lock"});
}

TEST(CheckpointFolder, BelongsToOneRun) {
  const Scratch scratch;
  const std::string stray = ".step-00000001.safetensors.tmp.1";
  const CheckpointFolder folder(scratch.folder(), {});
  std::ofstream(scratch / stray) << "being written by the holder";
  expect_text(refusal_of_folder(scratch.folder()), "is using this folder");
  EXPECT_EQ(exit_code_of([&] {
              expect_text(refusal_of_folder(scratch.folder()), "process " + std::to_string(::getppid()));
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
  EXPECT_TRUE(std::filesystem::exists(scratch / stray));
}

TEST(CheckpointFolder, RemovesPartialFilesOfAKilledProcess) {
  const Scratch scratch;
  const std::vector<std::string> others = {".hidden.tmp.1", ".step-notes", "step-1.tmp.2"};
  for (const std::string& name : others) std::ofstream(scratch / name) << "x";
  std::ofstream(scratch / ".step-00000001.safetensors.tmp.77") << "half";
  const CheckpointFolder folder(scratch.folder(), {});
  EXPECT_EQ(names_in(scratch.folder()),
            (std::vector<std::string>{".hidden.tmp.1", ".lock", ".step-notes", "step-1.tmp.2"}));
}

TEST(CheckpointFolder, RefusesToKeepTooFew) {
  const Scratch scratch;
  for (const CheckpointRetention retention :
       {CheckpointRetention{.keep_last = 1}, CheckpointRetention{.keep_best = -1}})
    EXPECT_THROW(CheckpointFolder(scratch.folder(), retention), ConfigError);
}

TEST(CheckpointList, ReturnsTheHeadersTheLatestFirst) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {});
  save_step(folder.file_of(20), 20, "a", 0.5);
  save_step(folder.file_of(100), 100, "b");
  const auto list = list_checkpoints(scratch.folder());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].path, folder.file_of(100));
  EXPECT_EQ(list[0].run_id, "b");
  EXPECT_EQ(list[0].global_step, 100);
  EXPECT_EQ(list[0].epoch, 10);
  EXPECT_EQ(list[0].monitored_value, std::nullopt);
  EXPECT_EQ(list[1].monitor, "val_loss");
  EXPECT_EQ(list[1].monitored_value, 0.5);
}

TEST(CheckpointList, SkipsAndLogsFilesThatAreNotCheckpoints) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {});
  save_step(folder.file_of(1), 1);
  save_step(scratch / "step-2.safetensors", 2);  // other names are ignored without a warning
  save_step(scratch / "best.safetensors", 3);
  save_step(scratch / "step-00000004.safetensors.set_aside", 4);
  save_step(folder.file_of(5), 5, "run", {}, WithChecksums::no);
  std::ofstream(folder.file_of(6)) << "no safetensors";
  Metadata without_run = metadata_at(7, "");
  without_run.erase(saved_keys::kRunId);
  write_safetensors(folder.file_of(7), {}, without_run, WithChecksums::yes);
  Metadata odd_step = metadata_at(8, "run");
  odd_step[saved_keys::kGlobalStep] = "8x";
  write_safetensors(folder.file_of(8), {}, odd_step, WithChecksums::yes);
  std::filesystem::create_directory(folder.file_of(9));
  const Warnings warnings;
  const auto list = list_checkpoints(scratch.folder());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].global_step, 1);
  ASSERT_EQ(warnings.texts.size(), 5u);
  expect_text(warnings.texts[0], "it is a folder");
  expect_text(warnings.texts[1], "progress.global_step in its metadata is not a number");
  expect_text(warnings.texts[2], "its metadata has no run_id");
  expect_text(warnings.texts[3], "step-00000006.safetensors");
  expect_text(warnings.texts[4], "it has no checksums");
}

TEST(CheckpointList, ThrowsIfTheFolderCannotBeRead) {
  const Scratch scratch;
  expect_text(error_text<CheckpointError>([&] { list_checkpoints(scratch / "no"); }),
              "cannot read the folder: No such file or directory");
  EXPECT_EQ(newest_valid_checkpoint(scratch.folder()), std::nullopt);
}

TEST(CheckpointList, RefusesCheckpointsOfANewerVersion) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {});
  save_step(folder.file_of(1), 1);
  Metadata newer = metadata_at(2, "run");
  newer[saved_keys::kFormatVersion] = "2";
  for (const WithChecksums checksums : {WithChecksums::no, WithChecksums::yes}) {
    write_safetensors(folder.file_of(2), {}, newer, checksums);
    expect_text(
        error_text<CheckpointError>([&] { newest_valid_checkpoint(scratch.folder()); }),
        "step-00000002.safetensors: it was saved by a newer version of Kindling (format 2); expected: format "
        "1 or older; use that version");
    folder.set_aside_after("run", 0);  // sets its own aside and ignores the newer one
    EXPECT_TRUE(std::filesystem::exists(folder.file_of(2)));
  }
}

TEST(CheckpointList, FallsBackToThePreviousCheckpoint) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {});
  for (const int step : {1, 2, 3}) save_step(folder.file_of(step), step, "run", 3.0 - step);
  for (int step = 3; step >= 1; --step) {
    EXPECT_EQ(newest_valid_checkpoint(scratch.folder())->global_step, step);
    EXPECT_EQ(best_valid_checkpoint(scratch.folder(), /*higher_is_better=*/false)->global_step, step);
    std::string bytes = read_file(folder.file_of(step), 1 << 20);
    bytes.back() ^= 1;
    std::ofstream(folder.file_of(step)) << bytes;
    const Warnings warnings;
    newest_valid_checkpoint(scratch.folder());
    ASSERT_FALSE(warnings.texts.empty());
    expect_text(warnings.texts.front(), "step-00000003.safetensors, tensor \"model.b\": its values");
  }
  EXPECT_EQ(newest_valid_checkpoint(scratch.folder()), std::nullopt);
  EXPECT_EQ(best_valid_checkpoint(scratch.folder(), false), std::nullopt);
}

TEST(CheckpointList, ReturnsTheEarliestOfEqualFiniteValuesOfTheLatestMonitor) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {});
  const double nan = std::nan("");
  const std::vector<std::optional<double>> values = {nan,  0.5,      0.25,      {},  0.25,
                                                     0.75, INFINITY, -INFINITY, 0.75};
  for (std::size_t i = 0; i < values.size(); ++i)
    save_step(folder.file_of(static_cast<int>(i)), static_cast<int>(i), "run", values[i]);
  EXPECT_EQ(best_valid_checkpoint(scratch.folder(), /*higher_is_better=*/false)->global_step, 2);
  EXPECT_EQ(best_valid_checkpoint(scratch.folder(), /*higher_is_better=*/true)->global_step, 5);
  Metadata other = metadata_at(20, "run", 100.0);
  other[saved_keys::kMonitorName] = "val_acc";
  write_safetensors(folder.file_of(20), {}, other, WithChecksums::yes);
  EXPECT_EQ(best_valid_checkpoint(scratch.folder(), /*higher_is_better=*/false)->global_step, 20);
}

TEST(CheckpointFolder, SetsAsideCheckpointsThatTheRunMayNotReachAgain) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {});
  for (const int step : {1, 2, 3}) save_step(folder.file_of(step), step);
  save_step(folder.file_of(4), 4, "another");
  save_step(folder.file_of(5), 5, "run", {}, WithChecksums::no);  // somebody's weights
  std::ofstream(folder.file_of(6)) << "damaged";
  std::ofstream(folder.file_of(0)) << "damaged, but earlier";
  folder.set_aside_after("run", 2);
  const std::vector<std::string> wanted = {".lock",
                                           "step-00000000.safetensors",
                                           "step-00000001.safetensors",
                                           "step-00000002.safetensors",
                                           "step-00000003.safetensors.set_aside",
                                           "step-00000004.safetensors",
                                           "step-00000005.safetensors",
                                           "step-00000006.safetensors.set_aside"};
  EXPECT_EQ(names_in(scratch.folder()), wanted);
  save_step(folder.file_of(3), 3);
  folder.set_aside_after("run", 2);
  EXPECT_TRUE(std::filesystem::exists(scratch / "step-00000003.safetensors.set_aside.2"));
  EXPECT_TRUE(holds_step(scratch / "step-00000003.safetensors.set_aside", 3));
}

TEST(CheckpointFolder, ThrowsIfADeletionFails) {
  const Scratch scratch;
  const CheckpointFolder folder(scratch.folder(), {.keep_last = 2, .keep_best = 0});
  for (const int step : {1, 2, 3}) save_step(folder.file_of(step), step);
  FailAtCall disk(6, EIO, /*for_good=*/false);  // each of the three has been opened and closed
  const ScopedFileOperations failing(disk);
  expect_text(error_text<CheckpointError>([&] { folder.prune("run"); }),
              "step-00000001.safetensors: cannot delete it");
  EXPECT_EQ(disk.failed, "unlink");
}

}  // namespace
}  // namespace kindling
