// Jobs of SLURM that are requeued, with a fake scontrol. tests/cli/run/preemptions.sh does the same with
// SLURM.
#include "cli/run/requeue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <thread>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// Overrides an environment variable for its lifetime.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

// It answers with the files next to it, and signals the program when it requeues its job, as SLURM does.
constexpr const char* kScontrol = R"(#!/bin/sh
here=$(dirname "$0")
case "$1 $2" in
  "show config") cat "$here/config" ;;
  "show job") cat "$here/job" || exit 1 ;;
  requeue*)
    echo "$2" >>"$here/requeued"
    cat "$here/refusal" 2>/dev/null && exit 1
    kill -CONT $PPID; kill -TERM $PPID ;;
esac
exit 0
)";

// Whether the process has become the program, and that has a handler for SIGUSR1.
bool notes_usr1(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  if (fs::read_symlink(folder + "/exe") == fs::read_symlink("/proc/self/exe")) return false;
  std::ifstream status(folder + "/status");
  for (std::string name, value; status >> name && std::getline(status, value);)
    if (name == "SigCgt:") return (std::stoull(value, nullptr, 16) >> (SIGUSR1 - 1) & 1) != 0;
  return false;
}

class RequeuedRun : public testing::Test {
 protected:
  RequeuedRun() : path_("PATH", (scratch_ / "bin").string() + ":" + std::getenv("PATH")) {
    fs::create_directories(scratch_ / "bin");
    write_text(scratch_ / "bin/scontrol", kScontrol);
    fs::permissions(scratch_ / "bin/scontrol", fs::perms::owner_all);
    write_text(scratch_ / "bin/config", "KillWait                = 30 sec\n");
    write_text(scratch_ / "bin/job", "   JobState=COMPLETING Reason=None Restarts=0\n");
    write_small_cnn(scratch_ / "small.toml", "every_n_epochs = 0", "[run]\non_usr1 = \"requeue\"\n");
  }

  std::vector<std::string> fit(const std::string& runs, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"fit", "-c", (scratch_ / "small.toml").string(), "--run.dir",
                                   (scratch_ / runs).string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  fs::path run(const std::string& runs, const std::string& number = "0001") const {
    return scratch_ / runs / "small" / number;
  }
  fs::path output() const { return scratch_ / "output.txt"; }
  std::string said() const { return text_of(output()); }
  // A life of a job: the program trains until the signal, if any, stops it.
  int live(
      const std::vector<std::string>& words, int restart_count, int signal = 0, const std::string& job = "17",
      const std::function<void()>& before_signal = [] {}) {
    const Variable id("SLURM_JOB_ID", job), count("SLURM_RESTART_COUNT", std::to_string(restart_count));
    Process process(words, output());
    if (signal != 0) {
      process.wait_until([&] { return said().find("  2  ") != std::string::npos; });
      before_signal();
      process.send(signal);
    }
    return process.wait();
  }
  std::string requeued() const { return text_of(scratch_ / "bin/requeued"); }

  const Scratch scratch_;
  const Variable path_;
};

TEST_F(RequeuedRun, IsRefusedOutsideSlurmAndWithoutScontrol) {
  ASSERT_EQ(run_process(fit("runs"), output()), 2) << said();
  EXPECT_EQ(
      said(),
      "run.on_usr1: it is \"requeue\", but this process is not in a job of SLURM: SLURM_JOB_ID is not set; "
      "expected: a job of SLURM; submit the fit with sbatch --requeue, or set run.on_usr1=save\n");
  const Variable path("PATH", (scratch_ / "nothing").string());
  EXPECT_EQ(live(fit("runs"), 0), 2);
  EXPECT_EQ(said(),
            "run.on_usr1: it is \"requeue\", but scontrol cannot be run: No such file or directory; "
            "expected: SLURM's scontrol on the PATH; submit the fit with sbatch --requeue, or set "
            "run.on_usr1=save\n");
  EXPECT_FALSE(fs::exists(scratch_ / "runs"));
}

TEST_F(RequeuedRun, ContinuesInTheNextLifeOfItsJob) {
  const std::string ranks = "trainer.num_processes=2";
  ASSERT_EQ(run_process(fit("undisturbed", {ranks, "run.on_usr1=save"}), output()), 0) << said();
  const auto words = fit("runs", {ranks});
  EXPECT_EQ(live(words, 0, SIGUSR1), 138) << said();
  EXPECT_EQ(requeued(), "17\n");
  EXPECT_NE(said().find("requeued job 17; its next start resumes this run\n"), std::string::npos) << said();
  EXPECT_EQ(said().find("resume with"), std::string::npos) << said();
  EXPECT_EQ(run_text(run("runs"), "slurm_job"), "17");
  EXPECT_EQ(live(words, 1), 0) << said();
  EXPECT_EQ(said().find("the config has changed"), std::string::npos) << said();
  EXPECT_EQ(requeued(), "17\n");
  expect_same_run(run("runs"), run("undisturbed"));
  EXPECT_FALSE(fs::exists(run("runs", "0002")));
}

// Even if the config names another checkpoint to start from.
TEST_F(RequeuedRun, ContinuesTheRunOfItsJobAndCommand) {
  ASSERT_EQ(live(fit("runs", {"trainer.max_steps=1"}), 0, 0, "16"), 0) << said();
  const auto words = fit("runs", {"checkpoint.resume=last", "--allow-config-change"});
  EXPECT_EQ(live(words, 0, SIGUSR1), 138) << said();
  const auto step = [&] { return newest_valid_checkpoint(run("runs") / "checkpoints").value().global_step; };
  const std::int64_t stopped_at = step();
  EXPECT_GT(stopped_at, 1);
  // A newer run of another job, and another command of this one.
  ASSERT_EQ(live(fit("runs", {"trainer.max_steps=1"}), 0, 0, "18"), 0) << said();
  ASSERT_EQ(live(fit("runs", {"trainer.max_steps=2"}), 1), 0) << said();
  EXPECT_TRUE(fs::exists(run("runs", "0003")));
  EXPECT_EQ(live(words, 1), 0) << said();
  EXPECT_EQ(nlohmann::json::parse(text_of(run("runs") / "run.json"))["resumed_from_step"], stopped_at);
  EXPECT_FALSE(fs::exists(run("runs", "0004")));
}

TEST_F(RequeuedRun, StartsAgainInItsFolderIfItHadNoCheckpoint) {
  const auto words = fit("runs");
  EXPECT_EQ(live(words, 0, SIGKILL), 137);
  EXPECT_EQ(live(words, 1), 0) << said();
  EXPECT_FALSE(fs::exists(run("runs", "0002")));
  ASSERT_EQ(run_process(fit("undisturbed", {"run.on_usr1=save"}), output()), 0) << said();
  expect_same_run(run("runs"), run("undisturbed"));
}

// It searches again, so its config is that of the run.
TEST_F(RequeuedRun, StartsAgainIfAFinderWasStopped) {
  const auto words = fit("runs", {"lr_finder.num_training_steps=600"});
  {
    const Variable id("SLURM_JOB_ID", "17"), count("SLURM_RESTART_COUNT", "0");
    Process process(words, output());
    process.wait_until([&] { return fs::exists(run("runs") / "config.toml"); });
    process.send(SIGKILL);
    EXPECT_EQ(process.wait(), 137);
  }
  EXPECT_EQ(said().find("lr_finder   optimizer.lr = "), std::string::npos) << said();
  EXPECT_EQ(live(words, 1), 0) << said();
  EXPECT_NE(said().find("lr_finder   optimizer.lr = "), std::string::npos) << said();
  EXPECT_EQ(said().find("the config has changed"), std::string::npos) << said();
  EXPECT_FALSE(fs::exists(run("runs", "0002")));
}

TEST_F(RequeuedRun, EndsWith75IfSlurmRefuses) {
  write_text(scratch_ / "bin/refusal", "Requested operation is presently disabled for job 17\n");
  EXPECT_EQ(live(fit("runs", {"trainer.num_processes=2"}), 0, SIGUSR1), 75) << said();
  EXPECT_EQ(requeued(), "17\n");
  EXPECT_NE(
      said().find("scontrol requeue 17: exit code 1: Requested operation is presently disabled for job 17; "
                  "expected: a batch job that SLURM may requeue; what is saved is kept; submit the line "
                  "below, and later jobs with sbatch --requeue\n"),
      std::string::npos)
      << said();
  EXPECT_TRUE(said().ends_with("submit with   sbatch --requeue --ntasks=2 --wrap 'kindling fit --resume " +
                               run("runs").string() + "'\n"))
      << said();
  EXPECT_TRUE(newest_valid_checkpoint(run("runs") / "checkpoints"));
}

TEST_F(RequeuedRun, KeepsItsConfigAndNamesEdits) {
  const auto words = fit("runs");
  EXPECT_EQ(live(words, 0, SIGUSR1), 138) << said();
  const std::string text = text_of(scratch_ / "small.toml");
  write_text(scratch_ / "small.toml",
             std::regex_replace(text, std::regex("\"adamw\""), "\"adamw\"\nweight_decay = 0.5"));
  EXPECT_EQ(live(words, 1), 0) << said();
  EXPECT_NE(said().find("the config has changed since the run began (optimizer.weight_decay: was 0.01, now "
                        "0.5), "
                        "and a job that continues keeps that of the run, " +
                        (run("runs") / "config.toml").string()),
            std::string::npos)
      << said();
  write_text(scratch_ / "small.toml", text);
  ASSERT_EQ(run_process(fit("undisturbed", {"run.on_usr1=save"}), output()), 0) << said();
  expect_same_run(run("runs"), run("undisturbed"));
}

// Also a signal that comes while the launching process reads the config and the data, or its ranks start.
TEST_F(RequeuedRun, SavesWhatASignalBeforeTheTrainingStops) {
  const Variable id("SLURM_JOB_ID", "17"), count("SLURM_RESTART_COUNT", "0");
  int number = 0;
  struct Time {
    bool has_ranks;
    int delay_ms;
  };
  for (const Time at : {Time{false, 0}, {false, 50}, {false, 100}, {true, 0}, {true, 100}}) {
    const std::string runs = "runs_" + std::to_string(number++);
    Process process(fit(runs, {"trainer.num_processes=2", "trainer.max_epochs=2000"}), output());
    process.wait_until(
        [&] { return at.has_ranks ? children_of(process.id()).size() == 2 : notes_usr1(process.id()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(at.delay_ms));
    process.send(SIGUSR1);
    EXPECT_EQ(process.wait(), 138) << said();
    EXPECT_EQ(requeued(), "17\n") << said();
    fs::remove(scratch_ / "bin/requeued");
  }
}

// The next lives would repeat the same steps, as long as the disk is full.
TEST_F(RequeuedRun, IsNotRequeuedIfItCouldNotBeSaved) {
  const auto lose_folder = [&] {
    fs::remove_all(run("runs") / "checkpoints");
    write_text(run("runs") / "checkpoints", "a file");
  };
  EXPECT_EQ(live(fit("runs", {"checkpoint.on_error=continue"}), 0, SIGUSR1, "17", lose_folder), 75) << said();
  EXPECT_EQ(requeued(), "");
  EXPECT_NE(said().find("scontrol requeue 17: it was not called, because saving has failed: the latest "
                        "checkpoint lacks "),
            std::string::npos)
      << said();
}

// SLURM sends SIGTERM at the time limit, and for a job that somebody else cancels or requeues.
TEST_F(RequeuedRun, RequeuesAtTheTimeLimitAndNotWhenItIsCancelled) {
  EXPECT_EQ(live(fit("cancelled"), 0, SIGTERM), 143) << said();
  EXPECT_EQ(requeued(), "");
  EXPECT_NE(said().find("resume with   kindling fit --resume "), std::string::npos) << said();
  write_text(scratch_ / "bin/job", "   JobState=COMPLETING Reason=None Restarts=1\n");
  EXPECT_EQ(live(fit("requeued"), 0, SIGTERM), 143) << said();
  EXPECT_EQ(requeued(), "");
  EXPECT_NE(said().find("SLURM has requeued job 17; its next start resumes this run\n"), std::string::npos)
      << said();
  write_text(scratch_ / "bin/job", "   JobState=COMPLETING Reason=TimeLimit Restarts=1\n");
  EXPECT_EQ(live(fit("limit"), 1, SIGTERM), 143) << said();
  EXPECT_EQ(requeued(), "17\n");
  EXPECT_EQ(live(fit("interrupted"), 1, SIGINT), 130) << said();
  EXPECT_EQ(requeued(), "17\n");
}

// A grace time, after which SLURM requeues what still runs; a controller that does not answer; a second fit
// of the job, whose first one has requeued it.
TEST_F(RequeuedRun, RequeuesWhatSlurmPreemptsAndReportsWhatItCannotKnow) {
  const SlurmJob job{.id = "17", .number = "17"};
  write_text(scratch_ / "bin/job",
             "JobId=17 JobState=RUNNING Reason=None Restarts=0 PreemptTime=2026-11-30T04:00:00\n");
  write_text(scratch_ / "bin/refusal", "Job is pending\n");
  EXPECT_EQ(requeue(job, 128 + SIGTERM, 0), RequeueResult::refused);
  EXPECT_EQ(requeued(), "17\n");
  write_text(scratch_ / "bin/job", "JobId=17 JobState=RUNNING Reason=None Restarts=0 PreemptTime=None\n");
  EXPECT_EQ(requeue(job, 128 + SIGTERM, 0), RequeueResult::not_wanted);
  write_text(scratch_ / "bin/job", "JobId=17 JobState=COMPLETING Reason=None Restarts=1\n");
  EXPECT_EQ(requeue(job, 128 + SIGUSR1, 0), RequeueResult::requeued);
  fs::remove(scratch_ / "bin/job");
  EXPECT_EQ(requeue(job, 128 + SIGTERM, 0), RequeueResult::refused);
}

TEST_F(RequeuedRun, IsNotThatOfTheArrayTaskThatHasSubmittedTheJob) {
  const SlurmJob job{.id = "17_3", .number = "25", .array_task = "3"};
  write_text(scratch_ / "bin/refusal", "no\n");
  write_text(scratch_ / "bin/job", "JobId=25 JobState=RUNNING Reason=None Restarts=0\n");
  requeue(job, 128 + SIGUSR1, 0);
  write_text(scratch_ / "bin/job",
             "JobId=26 ArrayJobId=17 ArrayTaskId=2 JobState=RUNNING Restarts=0\n"
             "JobId=25 ArrayJobId=17 ArrayTaskId=3 JobState=RUNNING Restarts=0\n");
  requeue(job, 128 + SIGUSR1, 0);
  EXPECT_EQ(requeued(), "25\n17_3\n");
}

TEST_F(RequeuedRun, WarnsOnceOfSavesThatTakeLongerThanKillWait) {
  const std::string warning = "s, but SLURM kills a job 0 s (KillWait) after it has asked it to end";
  write_text(scratch_ / "bin/config", "KillWait                = 0 sec\n");
  ASSERT_EQ(live(fit("slow", {"checkpoint.every_n_epochs=1"}), 0), 0);
  const std::size_t at = said().find(warning);
  EXPECT_NE(at, std::string::npos) << said();
  EXPECT_EQ(said().find(warning, at + 1), std::string::npos) << said();
  write_text(scratch_ / "bin/config", "KillWait                = 30 sec\n");
  ASSERT_EQ(live(fit("fast", {"checkpoint.every_n_epochs=1"}), 0), 0);
  EXPECT_EQ(said().find("(KillWait)"), std::string::npos) << said();
}

// Before, the second task was refused because it took the run of the first one.
TEST_F(RequeuedRun, IsThatOfItsTaskInAnArray) {
  const Variable array("SLURM_ARRAY_JOB_ID", "17");
  const auto task = [&](const std::string& number, const std::string& steps) {
    const Variable id("SLURM_ARRAY_TASK_ID", number);
    ASSERT_EQ(live(fit("runs", {"checkpoint.resume=last", "trainer.max_steps=" + steps}), 0), 0) << said();
  };
  task("0", "1");
  task("1", "1");
  EXPECT_NE(said().find("runs/small of task 1 of the array; starting a new run"), std::string::npos)
      << said();
  EXPECT_EQ(run_text(run("runs"), "slurm_job"), "17_0");
  EXPECT_EQ(run_text(run("runs", "0002"), "slurm_job"), "17_1");
  task("0", "3");
  EXPECT_EQ(newest_valid_checkpoint(run("runs") / "checkpoints").value().global_step, 3);
  EXPECT_EQ(newest_valid_checkpoint(run("runs", "0002") / "checkpoints").value().global_step, 1);
  EXPECT_FALSE(fs::exists(run("runs", "0003")));
  // Runs of former versions and outside of arrays belong to no task.
  ASSERT_EQ(live(fit("former", {"trainer.max_steps=1"}), 0), 0) << said();
  const Variable id("SLURM_ARRAY_TASK_ID", "5");
  ASSERT_EQ(live(fit("former", {"checkpoint.resume=last", "trainer.max_steps=2"}), 0), 0) << said();
  EXPECT_EQ(newest_valid_checkpoint(run("former") / "checkpoints").value().global_step, 2);
}

TEST(LineToSubmit, StartsTheRanksAsThisJobDid) {
  EXPECT_EQ(line_to_submit({}, "runs/a/0001"),
            "sbatch --requeue --ntasks=1 --wrap 'kindling fit --resume runs/a/0001'");
  const auto line = [](const char* launcher) {
    return line_to_submit(LaunchEnvironment{.size = 4, .launcher = launcher}, "a/0001");
  };
  EXPECT_EQ(line("SLURM"), "sbatch --requeue --ntasks=4 --wrap 'srun kindling fit --resume a/0001'");
  EXPECT_EQ(line("Open MPI"),
            "sbatch --requeue --ntasks=4 --wrap 'mpirun -np 4 kindling fit --resume a/0001'");
  EXPECT_EQ(line("MPICH"), "sbatch --requeue --ntasks=4 --wrap 'mpiexec -n 4 kindling fit --resume a/0001'");
}

}  // namespace
}  // namespace kindling
