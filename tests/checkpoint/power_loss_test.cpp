#include "checkpoint/power_loss.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/file_descriptor.h"
#include "checkpoint/saved_states.h"
#include "support/scratch.h"

namespace kindling {

namespace {

std::string name_in(const char* path) { return std::filesystem::path(path).filename().string(); }

}  // namespace

RecordedCalls::RecordedCalls(const FolderState& before) {
  for (const auto& [name, bytes] : before) files_[name] = count_++;  // as Disk numbers them
}

int RecordedCalls::open(const char* path, int flags, mode_t mode) {
  const int descriptor = FileOperations::open(path, flags, mode);
  if (descriptor < 0) return descriptor;
  const std::string name = name_in(path);
  by_descriptor_[descriptor] = kRootFolder;
  if ((flags & O_DIRECTORY) != 0 || (flags & O_ACCMODE) == O_RDONLY) return descriptor;
  if (const auto [place, is_new] = files_.try_emplace(name, count_); is_new) {
    events.push_back({.kind = DiskEvent::Kind::name, .file = count_++, .name = name});
  } else if ((flags & O_TRUNC) != 0) {
    events.push_back({.kind = DiskEvent::Kind::truncate, .file = place->second});
  }
  by_descriptor_[descriptor] = files_[name];
  return descriptor;
}

ssize_t RecordedCalls::write(int descriptor, const void* bytes, std::size_t size) {
  events.push_back({.kind = DiskEvent::Kind::write,
                    .file = by_descriptor_.at(descriptor),
                    .bytes = std::string(static_cast<const char*>(bytes), size)});
  return FileOperations::write(descriptor, bytes, size);
}

int RecordedCalls::fsync(int descriptor) {
  const int file = by_descriptor_.at(descriptor);
  const auto kind = file == kRootFolder ? DiskEvent::Kind::sync_folder : DiskEvent::Kind::sync_file;
  events.push_back({.kind = kind, .file = file});
  return FileOperations::fsync(descriptor);
}

// Some file systems may keep the new name and still lose the removal of the old one.
int RecordedCalls::rename(const char* from, const char* to) {
  const int file = files_.at(name_in(from));
  events.push_back({.kind = DiskEvent::Kind::name, .file = file, .name = name_in(to)});
  events.push_back({.kind = DiskEvent::Kind::unname, .file = file, .name = name_in(from)});
  files_.erase(name_in(from));
  files_[name_in(to)] = file;
  return FileOperations::rename(from, to);
}

int RecordedCalls::unlink(const char* path) {
  events.push_back(
      {.kind = DiskEvent::Kind::unname, .file = files_.at(name_in(path)), .name = name_in(path)});
  files_.erase(name_in(path));
  return FileOperations::unlink(path);
}

namespace {

// The contents of a directory: the latest valid checkpoint.
std::string whole_checkpoint_of(const std::string& folder) {
  const auto newest = newest_valid_checkpoint(folder);
  if (!newest) return "none";
  if (!holds_step(newest->path, newest->global_step)) return "something else";
  return newest->run_id + " " + std::to_string(newest->global_step);
}

// The calls of one save: `before` was in the directory; `after` must be there permanently once the first
// `returned` events have happened.
struct RecordedSave {
  FolderState folder;
  std::string before, after;
  std::vector<DiskEvent> events;
  std::size_t returned = 0;

  RecordedSave without(DiskEvent::Kind kind) const {
    RecordedSave changed = *this;
    changed.returned -= static_cast<std::size_t>(
        std::count_if(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(returned),
                      [&](const DiskEvent& event) { return event.kind == kind; }));
    std::erase_if(changed.events, [&](const DiskEvent& event) { return event.kind == kind; });
    return changed;
  }
};

struct Losses {
  std::size_t prefixes = 0, states = 0;
  std::vector<std::string> broken{};
};

Losses replay(const RecordedSave& save, const std::string& folder) {
  Losses losses;
  Disk disk(save.folder);
  for (std::size_t count = 0; count <= save.events.size(); ++count, ++losses.prefixes) {
    if (count > 0) disk.apply(save.events[count - 1]);
    for (const FolderState& state : disk.states_after_power_loss()) {
      ++losses.states;
      write_folder(folder, state);
      const std::string found = whole_checkpoint_of(folder);
      const bool is_good = found == save.after || (count < save.returned && found == save.before);
      if (!is_good) losses.broken.push_back(found + " after " + std::to_string(count) + " events");
    }
  }
  return losses;
}

template <class Save, class Rest>
RecordedSave recorded(const std::filesystem::path& folder, const std::string& after, Save save, Rest rest) {
  RecordedSave record{
      .folder = read_folder(folder), .before = whole_checkpoint_of(folder), .after = after, .events = {}};
  RecordedCalls calls(record.folder);
  const ScopedFileOperations in_force(calls);
  save();
  record.returned = calls.events.size();
  rest();
  record.events = calls.events;
  return record;
}

void write_in_place(const std::filesystem::path& path, std::int64_t step, const std::string& run_id) {
  const std::filesystem::path other = path.parent_path() / "other";
  {
    FileOperations system;
    const ScopedFileOperations unrecorded(system);
    save_step(other, step, run_id);
  }
  const std::string bytes = read_file(other, 1 << 20);
  FileDescriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  write_all(file.get(), bytes);
  sync_to_disk(file.get());
  file.close();
  FileDescriptor folder(path.parent_path(), O_RDONLY | O_DIRECTORY);
  sync_to_disk(folder.get());
}

class PowerLoss : public testing::Test {
 protected:
  PowerLoss() {
    std::filesystem::create_directory(folder_);
    save_step(folder_ / "step-00000002.safetensors", 2, "old");
  }
  // The same file again, as at a stop right after a save: the hardest case, as no other file is left.
  RecordedSave recorded_overwrite() {
    return recorded(
        folder_, "new 2", [&] { save_step(folder_ / "step-00000002.safetensors", 2, "new"); }, [] {});
  }
  Losses replayed(const RecordedSave& save) { return replay(save, (scratch_ / "after").string()); }

  const Scratch scratch_{memory_folder()};
  const std::filesystem::path folder_ = scratch_ / "checkpoints";
};

TEST_F(PowerLoss, LeavesOldOrNewWhenAFileIsSavedAgain) {
  const RecordedSave save = recorded_overwrite();
  ASSERT_EQ(save.before, "old 2");
  const Losses losses = replayed(save);
  EXPECT_TRUE(losses.broken.empty()) << losses.broken.front();
  std::cout << "R3: a file saved again: " << losses.prefixes << " prefixes, " << losses.states << " states\n";
}

TEST_F(PowerLoss, LeavesOldOrNewWhenOlderOnesAreDeleted) {
  std::filesystem::remove_all(folder_);
  const CheckpointFolder checkpoints(folder_, {.keep_last = 2, .keep_best = 0});
  for (const int step : {1, 2}) save_step(checkpoints.file_of(step), step);
  const RecordedSave save = recorded(
      folder_, "run 3", [&] { save_step(checkpoints.file_of(3), 3); }, [&] { checkpoints.prune("run"); });
  ASSERT_EQ(save.before, "run 2");
  ASSERT_EQ(save.events.back().kind, DiskEvent::Kind::unname);
  const Losses losses = replayed(save);
  EXPECT_TRUE(losses.broken.empty()) << losses.broken.front();
  std::cout << "R3: a save and a deletion: " << losses.prefixes << " prefixes, " << losses.states
            << " states\n";
}

TEST_F(PowerLoss, LeavesNoneOrTheFirstOne) {
  std::filesystem::remove(folder_ / "step-00000002.safetensors");
  const RecordedSave save = recorded_overwrite();
  ASSERT_EQ(save.before, "none");
  const Losses losses = replayed(save);
  EXPECT_TRUE(losses.broken.empty()) << losses.broken.front();
  std::cout << "R3: a first save: " << losses.prefixes << " prefixes, " << losses.states << " states\n";
}

// Checks the replay itself: it detects saves that omit a step.
TEST_F(PowerLoss, BreaksASaveThatDoesNotSyncTheFile) {
  const Losses losses = replayed(recorded_overwrite().without(DiskEvent::Kind::sync_file));
  EXPECT_NE(std::ranges::find_if(losses.broken, [](const auto& text) { return text.starts_with("none"); }),
            losses.broken.end());
  std::cout << "R3: without fsync of the file " << losses.broken.size() << " of " << losses.states
            << " states are broken\n";
}

TEST_F(PowerLoss, UndoesASaveThatDoesNotSyncTheFolder) {
  const Losses losses = replayed(recorded_overwrite().without(DiskEvent::Kind::sync_folder));
  ASSERT_FALSE(losses.broken.empty());
  EXPECT_TRUE(losses.broken.front().starts_with("old 2")) << losses.broken.front();
  std::cout << "R3: without fsync of the folder " << losses.broken.size() << " of " << losses.states
            << " states are broken\n";
}

TEST_F(PowerLoss, BreaksASaveInPlace) {
  const RecordedSave save = recorded(
      folder_, "new 2", [&] { write_in_place(folder_ / "step-00000002.safetensors", 2, "new"); }, [] {});
  const Losses losses = replayed(save);
  EXPECT_NE(std::ranges::find_if(losses.broken, [](const auto& text) { return text.starts_with("none"); }),
            losses.broken.end());
  std::cout << "R3: written in place " << losses.broken.size() << " of " << losses.states
            << " states are broken\n";
}

}  // namespace
}  // namespace kindling
