// The program restarts its processes when one is lost, with identical results.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using RestartWords = std::vector<std::string>;

class Restart : public testing::Test {
 protected:
  RestartWords fit(const std::string& runs, const RestartWords& more = {}) const {
    RestartWords words{"fit",
                       "-c",
                       (scratch_ / "small.toml").string(),
                       "--run.dir",
                       (scratch_ / runs).string(),
                       "trainer.num_processes=2",
                       "data.batch_size=32"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::filesystem::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }
  std::string said() const { return text_of(output()); }
  std::ptrdiff_t num_records(const std::string& runs) const {
    return std::ranges::count(text_of(run(runs) / "metrics.jsonl"), '\n');
  }
  void expect_success(const RestartWords& words) const {
    ASSERT_EQ(run_process(words, output()), 0) << said();
  }
  // After this much has been logged; 0: immediately after the start.
  void kill_one(Process& process, const std::string& runs, std::ptrdiff_t records, std::size_t victim) const {
    process.wait_until([&] { return num_records(runs) >= records && children_of(process.id()).size() == 2; });
    ASSERT_TRUE(process.is_running()) << said();
    ::kill(children_of(process.id()).at(victim), SIGKILL);
  }
  static std::string killed(std::size_t victim) {
    return "process " + std::to_string(victim) + " of 2 was ended by signal 9 (Killed)";
  }

  const Scratch scratch_;
};

TEST_F(Restart, ResumesBitIdenticallyInTheSameDirectory) {
  struct Place {
    const char* name;
    const char* checkpoint;
    std::ptrdiff_t records;
    std::size_t victim;
  };
  const char* const steps = "every_n_steps = 5\n";
  const char* const never = "every_n_epochs = 0\n";  // it starts again in its directory
  int i = 0;
  for (const Place& place :
       {Place{"at_the_start", steps, 0, 1}, Place{"after_a_checkpoint", steps, 12, 0},
        Place{"in_a_later_epoch", steps, 80, 1}, Place{"without_a_checkpoint", never, 30, 0}}) {
    SCOPED_TRACE(place.name);
    write_small_cnn(scratch_ / "small.toml", place.checkpoint);
    const std::string runs = std::to_string(i++), whole = place.checkpoint == steps ? "steps" : "never";
    if (!std::filesystem::exists(run(whole))) expect_success(fit(whole));
    Process process(fit(runs, {"distributed.max_restarts=1"}), output());
    kill_one(process, runs, place.records, place.victim);
    EXPECT_EQ(process.wait(), 0) << said();
    EXPECT_NE(said().find("restart 1 of 1, because " + killed(place.victim)), std::string::npos) << said();
    EXPECT_FALSE(std::filesystem::exists(scratch_ / runs / "small/0002"));
    for (const char* log : {"log.txt", "log.rank1.txt"})
      EXPECT_NE(text_of(run(runs) / log).find("restart 1, because " + killed(place.victim)),
                std::string::npos);
    expect_same_run(run(runs), run(whole));
  }
}

// Steps after the named checkpoint no longer belong to the run, also for its restarts.
TEST_F(Restart, ResumesAfterAnEarlierCheckpointWasNamed) {
  write_small_cnn(scratch_ / "small.toml", "every_n_steps = 5\nkeep_last = 100\n");
  const RestartWords plain{"schedule.name=constant", "schedule.warmup_steps=0"};
  expect_success(fit("whole", plain));
  RestartWords shorter = plain;
  shorter.push_back("trainer.max_epochs=3");
  expect_success(fit("run", shorter));
  Process process({"fit", "--resume", (run("run") / "checkpoints/step-00000015.safetensors").string(),
                   "trainer.max_epochs=6", "distributed.max_restarts=1"},
                  output());
  process.wait_until([&] { return said().find("total ") != std::string::npos; });
  const std::ptrdiff_t records = num_records("run");
  kill_one(process, "run", records + 8, 1);
  EXPECT_EQ(process.wait(), 0) << said();
  EXPECT_NE(said().find("restart 1 of 1"), std::string::npos) << said();
  expect_same_run(run("run"), run("whole"));
}

TEST_F(Restart, RespectsTheMaximum) {
  write_small_cnn(scratch_ / "small.toml", "every_n_steps = 5\n");
  expect_success(fit("whole"));
  Process process(fit("run", {"distributed.max_restarts=1"}), output());
  kill_one(process, "run", 10, 1);
  process.wait_until([&] { return said().find("restart 1 of 1") != std::string::npos; });
  kill_one(process, "run", num_records("run") + 10, 0);
  EXPECT_EQ(process.wait(), 128 + SIGKILL) << said();
  EXPECT_EQ(said().find("restart 2"), std::string::npos) << said();
  expect_success({"fit", "--resume", run("run").string()});
  expect_same_run(run("run"), run("whole"));
}

TEST_F(Restart, IsSkippedForPermanentErrors) {
  write_small_cnn(scratch_ / "small.toml");
  EXPECT_EQ(run_process(
                fit("diverged", {"distributed.max_restarts=2", "optimizer.lr=1e30", "schedule.name=constant",
                                 "schedule.warmup_steps=0", "trainer.gradient_clip_val=0"}),
                output()),
            4)
      << said();
  EXPECT_EQ(said().find("restart 1"), std::string::npos) << said();
}

TEST_F(Restart, AppliesOnlyToProcessesOfTheProgram) {
  write_small_cnn(scratch_ / "small.toml");
  expect_success({"fit", "-c", (scratch_ / "small.toml").string(), "--run.dir", (scratch_ / "runs").string(),
                  "trainer.max_epochs=1", "distributed.max_restarts=2"});
  EXPECT_NE(said().find("distributed.max_restarts has no effect: a single process is not restarted"),
            std::string::npos)
      << said();
}

}  // namespace
}  // namespace kindling
