// Kills a process at every system call of a save.
#include <gtest/gtest.h>

#include <iostream>

#include "checkpoint/saved_states.h"
#include "support/file_faults.h"
#include "support/places_tried.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr const char* kSavedFile = "step-00000002.safetensors";

// The contents of a directory before the save of step 2 by "new".
struct Start {
  const char* name;
  std::vector<std::int64_t> steps;  // saved by "old"
};

void lay_out(const std::filesystem::path& folder, const Start& start) {
  UnsyncedCalls calls;
  const ScopedFileOperations in_force(calls);
  std::filesystem::remove_all(folder);
  if (start.steps.empty()) return;  // the save also creates the directory
  const CheckpointFolder checkpoints(folder, {});
  for (const std::int64_t step : start.steps) save_step(checkpoints.file_of(step), step, "old");
}

// The whole life of a checkpoint directory: start, save, deletion of older ones.
int save_and_prune(const std::filesystem::path& folder) {
  const CheckpointFolder checkpoints(folder, {});
  save_step(checkpoints.file_of(2), 2, "new");
  checkpoints.prune("new");
  return 0;
}

std::string newest_of(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return "none";
  const auto newest = newest_valid_checkpoint(folder);
  if (!newest) return "none";
  EXPECT_TRUE(holds_step(newest->path, newest->global_step));
  return newest->run_id + " " + std::to_string(newest->global_step);
}

void expect_old_or_new(const std::filesystem::path& folder, const std::string& before) {
  const std::string found = newest_of(folder);
  EXPECT_TRUE(found == before || found == "new 2") << found;
  UnsyncedCalls calls;
  const ScopedFileOperations in_force(calls);
  const CheckpointFolder next_start(folder, {});
  EXPECT_EQ(newest_of(folder), found);
  for (const std::string& name : names_in(folder))
    EXPECT_TRUE(name == ".lock" || name == kSavedFile || name == "step-00000001.safetensors") << name;
}

class KilledSave : public testing::TestWithParam<Start> {};

TEST_P(KilledSave, LeavesOldOrNewAndNothingElse) {
  const Scratch scratch(memory_folder());
  const std::filesystem::path folder = scratch / "checkpoints";
  lay_out(folder, GetParam());
  const std::string before = newest_of(folder);
  CountedCalls calls;
  {
    const ScopedFileOperations counted(calls);
    save_and_prune(folder);
  }
  constexpr int kRounds = 10 / kPlaceStride;
  int kills = 0, finished = 0;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t number = 0; number <= calls.calls.size(); ++number)
      for (const bool is_torn : {false, true}) {
        const bool is_write = number < calls.calls.size() && calls.calls[number] == "write";
        if (is_torn && !is_write) continue;
        lay_out(folder, GetParam());
        const int code = exit_code_of([&] {
          KillAtCall kill(number, is_torn);
          const ScopedFileOperations in_force(kill);
          return save_and_prune(folder);
        });
        ++(code == 0 ? finished : kills);
        expect_old_or_new(folder, before);
      }
  EXPECT_EQ(finished, kRounds);
  EXPECT_EQ(kills,
            kRounds * static_cast<int>(calls.calls.size() +
                                       static_cast<std::size_t>(std::ranges::count(calls.calls, "write"))));
  std::cout << "R2: " << kills << " kills at " << calls.calls.size()
            << " system calls, before: " << GetParam().name << "\n";
}

INSTANTIATE_TEST_SUITE_P(Starts, KilledSave,
                         testing::Values(Start{"nothing", {}}, Start{"an older one", {1}},
                                         Start{"the same file", {1, 2}}));

}  // namespace
}  // namespace kindling
