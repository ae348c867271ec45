#include "launch/slurm_job.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "kindling/base/error.h"
#include "launch/variable_map.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::optional<SlurmJob> job_of(const VariableMap& variables) {
  return slurm_job([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(SlurmJob, IsReadFromTheEnvironment) {
  EXPECT_FALSE(job_of({}));
  EXPECT_FALSE(job_of({{"SLURM_RESTART_COUNT", "1"}}));
  const auto job = job_of({{"SLURM_JOB_ID", "17"}}).value();
  EXPECT_EQ(job.id, "17");
  EXPECT_EQ(job.array_task, "");
  EXPECT_EQ(job.restart_count, 0);
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "17"}, {"SLURM_RESTART_COUNT", "2"}}).value().restart_count, 2);
}

// The last task has the number of the array as its SLURM_JOB_ID: `scontrol requeue 17` would requeue all
// tasks.
TEST(SlurmJob, NamesATaskOfAnArray) {
  for (const char* id : {"17", "18"}) {
    const auto job =
        job_of({{"SLURM_JOB_ID", id}, {"SLURM_ARRAY_JOB_ID", "17"}, {"SLURM_ARRAY_TASK_ID", "7"}}).value();
    EXPECT_EQ(job.id, "17_7");
    EXPECT_EQ(job.array_task, "7");
  }
}

TEST(SlurmJob, RefusesALifeThatIsNoNumber) {
  const std::string error = error_text<ConfigError>([] {
    job_of({{"SLURM_JOB_ID", "17"}, {"SLURM_RESTART_COUNT", "second"}});
  });
  EXPECT_NE(error.find("SLURM_RESTART_COUNT"), std::string::npos) << error;
  EXPECT_NE(error.find("second"), std::string::npos) << error;
}

// From SLURM 22.05.8.
TEST(ScontrolField, IsFoundInBothForms) {
  const std::string config =
      "Configuration data as of 2026-11-30T02:44:00\nKillOnBadExit           = 0\n"
      "KillWait                = 30 sec\nPreemptType             = preempt/none\n";
  EXPECT_EQ(scontrol_field(config, "KillWait"), "30 sec");
  EXPECT_EQ(scontrol_field(config, "Kill"), "");
  const std::string job =
      "JobId=1 JobName=lim.sh\n   JobState=COMPLETING Reason=TimeLimit Dependency=(null)\n"
      "   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0\n   TimeLimit=00:01:00 TimeMin=N/A\n";
  EXPECT_EQ(scontrol_field(job, "Reason"), "TimeLimit");
  EXPECT_EQ(scontrol_field(job, "Restarts"), "2");
  EXPECT_EQ(scontrol_field(job, "TimeMin"), "N/A");
  EXPECT_EQ(scontrol_field(job, "State"), "");
}

// A program named scontrol in front of the PATH.
class ScontrolOnPath {
 public:
  explicit ScontrolOnPath(const std::string& script) {
    if (!script.empty()) {
      write_text(scratch_ / "scontrol", "#!/bin/sh\n" + script);
      std::filesystem::permissions(scratch_ / "scontrol", std::filesystem::perms::owner_all);
    }
    ::setenv("PATH", (scratch_.folder().string() + (script.empty() ? "" : ":" + before_)).c_str(), 1);
  }
  ~ScontrolOnPath() { ::setenv("PATH", before_.c_str(), 1); }
  ScontrolOnPath(const ScontrolOnPath&) = delete;
  ScontrolOnPath& operator=(const ScontrolOnPath&) = delete;

 private:
  const Scratch scratch_;
  const std::string before_ = std::getenv("PATH");
};

TEST(Scontrol, AnswersWithItsExitCodeAndBothStreams) {
  const ScontrolOnPath scontrol("echo \"$1 $2\"\necho problem >&2\nexit 3\n");
  const CommandAnswer answer = run_scontrol({"requeue", "17"});
  EXPECT_EQ(answer.exit_code, 3);
  EXPECT_EQ(answer.text, "requeue 17\nproblem\n");
}

// SLURM sends them to all processes of the job that is being requeued.
TEST(Scontrol, OutlivesTheStopSignalsOfItsJob) {
  const ScontrolOnPath scontrol("kill -TERM $$\nkill -USR1 $$\nkill -CONT $$\necho requeued\n");
  const CommandAnswer answer = run_scontrol({"requeue", "17"});
  EXPECT_EQ(answer.exit_code, 0);
  EXPECT_EQ(answer.text, "requeued\n");
}

TEST(Scontrol, AnswersThatItCannotBeRun) {
  const ScontrolOnPath nothing("");
  const CommandAnswer answer = run_scontrol({"--version"});
  EXPECT_EQ(answer.exit_code, 127);
  EXPECT_EQ(answer.text, "scontrol cannot be run: No such file or directory");
}

}  // namespace
}  // namespace kindling
