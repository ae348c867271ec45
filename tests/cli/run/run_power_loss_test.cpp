// Power failures at every moment of a run, from the first folder that it creates on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "cli/run/recorded_calls.h"
#include "cli/run/same_run.h"
#include "kindling/formats/safetensors.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::string kRun = "runs/small/0001/", kCheckpoints = kRun + "checkpoints/";

bool is_checkpoint_path(const std::string& path) {
  return path.starts_with(kCheckpoints + "step-") && path.ends_with(".safetensors");
}

// What a resume needs.
bool is_needed(const std::string& path) { return is_checkpoint_path(path) || path == kRun + "config.toml"; }

std::int64_t step_in(const std::string& path) { return std::stoll(path.substr(kCheckpoints.size() + 5)); }

bool is_whole(const std::string& bytes) {
  try {
    return parse_safetensors(bytes, "state").has_checksums;
  } catch (const CheckpointError&) {
    return false;
  }
}

// The step that a resume would find; -1: none.
std::int64_t resumed_step(const FolderState& state, const std::string& config) {
  const auto found = state.find(kRun + "config.toml");
  if (found == state.end() || found->second != config) return -1;
  std::int64_t step = -1;
  for (const auto& [path, bytes] : state)
    if (is_checkpoint_path(path) && is_whole(bytes)) step = std::max(step, step_in(path));
  return step;
}

struct Losses {
  std::size_t states = 0;
  std::vector<std::string> lost{};
};

// A checkpoint is announced when its save returns, which is the first thing that happens after the sync of
// its folder.
Losses replay(const std::vector<DiskEvent>& events, int checkpoints, const std::string& config) {
  Losses losses;
  Disk disk;
  std::int64_t saved = -1, announced = -1;
  for (const DiskEvent& event : events) {
    disk.apply(event);
    if (event.kind == DiskEvent::Kind::name && is_checkpoint_path(kCheckpoints + event.name))
      saved = step_in(kCheckpoints + event.name);
    if (event.kind == DiskEvent::Kind::sync_folder && event.file == checkpoints) announced = saved;
    for (const FolderState& state : disk.states_after_power_loss(is_needed)) {
      ++losses.states;
      if (const std::int64_t found = resumed_step(state, config); found < announced)
        losses.lost.push_back("step " + std::to_string(announced) + " is lost, found " +
                              std::to_string(found));
    }
  }
  return losses;
}

class RunPowerLoss : public testing::Test {
 protected:
  // The events of a fit of 2 epochs with 4 saves each.
  std::vector<DiskEvent> record_fit() {
    write_text(scratch_ / "small.toml",
               "[model]\nname = \"softmax_regression\"\n[data]\nname = \"digits\"\nbatch_size = 64\n"
               "[trainer]\nmax_epochs = 2\nlog_every_n_steps = 1\n[checkpoint]\nevery_n_steps = 7\n");
    std::filesystem::create_directory(root_);
    ::setenv("LD_PRELOAD", KINDLING_RECORD_DISK_CALLS, 1);
    ::setenv("KINDLING_RECORD_ROOT", root_.c_str(), 1);
    ::setenv("KINDLING_RECORD_TO", (scratch_ / "record").c_str(), 1);
    const int code = run_process(
        {"fit", "-c", (scratch_ / "small.toml").string(), "--quiet", "run.dir=" + (root_ / "runs").string()},
        scratch_ / "output.txt");
    for (const char* name : {"LD_PRELOAD", "KINDLING_RECORD_ROOT", "KINDLING_RECORD_TO"}) ::unsetenv(name);
    EXPECT_EQ(code, 0) << text_of(scratch_ / "output.txt");
    recorded_.emplace(text_of(scratch_ / "record"), root_.string());
    config_ = text_of(root_ / kRun / "config.toml");
    return recorded_->events;
  }
  int folder(const std::string& path) const { return recorded_->number_of(path); }
  Losses replayed(const std::vector<DiskEvent>& events) const {
    return replay(events, folder(kCheckpoints.substr(0, kCheckpoints.size() - 1)), config_);
  }
  void SetUp() override {
    if (std::string_view(KINDLING_RECORD_DISK_CALLS).empty())
      GTEST_SKIP() << "a sanitizer's own library wants to be the first one that is loaded";
  }

  const Scratch scratch_{memory_folder()};
  const std::filesystem::path root_ = scratch_ / "disk";
  std::optional<RecordedDisk> recorded_;
  std::string config_;
};

TEST_F(RunPowerLoss, KeepsEveryAnnouncedCheckpoint) {
  const std::vector<DiskEvent> events = record_fit();
  ASSERT_EQ(events.front().kind, DiskEvent::Kind::make_folder);  // nothing was there before
  EXPECT_GT(events.size(), 100u);
  const Losses losses = replayed(events);
  EXPECT_TRUE(losses.lost.empty()) << losses.lost.size() << " of " << losses.states << ": " << losses.lost[0];
  std::cout << "R19: " << events.size() << " calls of a run, " << losses.states << " states\n";
}

// Shows that the replay would notice each missing sync.
TEST_F(RunPowerLoss, IsSeenToLoseARunWhoseParentsAreNotSynced) {
  const std::vector<DiskEvent> events = record_fit();
  for (const std::string path : {"", "runs", "runs/small", "runs/small/0001"}) {
    std::vector<DiskEvent> changed = events;
    std::erase_if(changed, [&](const DiskEvent& event) {
      return event.kind == DiskEvent::Kind::sync_folder && event.file == folder(path);
    });
    ASSERT_LT(changed.size(), events.size()) << path;
    EXPECT_FALSE(replayed(changed).lost.empty()) << path;
  }
}

}  // namespace
}  // namespace kindling
