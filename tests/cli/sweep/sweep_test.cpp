// Sweeps of the real program, each run of which is a process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class SweepProgram : public testing::Test {
 protected:
  void SetUp() override {
    write_text(scratch_ / "tiny.toml", R"(
[model]
name = "softmax_regression"
[data]
name = "digits"
batch_size = 256
[optimizer]
name = "sgd"
lr = 0.1
[trainer]
max_epochs = 3
num_threads = 1
[checkpoint]
every_n_steps = 2
)");
  }
  std::string tiny() const { return (scratch_ / "tiny.toml").string(); }
  std::vector<std::string> fit(std::vector<std::string> words) const {
    words.insert(words.begin(), {"fit", "-c", tiny(), "run.dir=" + scratch_.folder().string()});
    return words;
  }
  int run(std::vector<std::string> words) { return run_process(std::move(words), scratch_ / "output.txt"); }
  std::string output() const { return text_of(scratch_ / "output.txt"); }
  nlohmann::json table(const std::string& name) const {
    return nlohmann::json::parse(text_of(scratch_ / (name + "/table.json")))["runs"];
  }

  const Scratch scratch_;
};

TEST_F(SweepProgram, TurnsErrorsAndDivergenceIntoRows) {
  ASSERT_EQ(run(fit({"--sweep", "optimizer.lr=0.1,1e300,-1", "trainer.max_epochs=2", "--name", "rows"})), 0)
      << output();
  const auto rows = table("rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["status"], "finished");
  EXPECT_EQ(rows[0]["values"], (nlohmann::json{{"optimizer.lr", "0.1"}}));
  EXPECT_EQ(rows[0]["epochs"], 2);
  EXPECT_EQ(rows[0]["monitor"], "val_acc");
  EXPECT_GT(rows[0]["best"].get<double>(), 0.1);
  EXPECT_EQ(rows[1]["status"], "diverged");
  EXPECT_EQ(rows[2]["status"], "refused");
  EXPECT_NE(rows[2]["note"].get<std::string>().find("optimizer.lr"), std::string::npos);
  EXPECT_NE(output().find("best   001   optimizer.lr=0.1"), std::string::npos) << output();
  EXPECT_NE(text_of(scratch_ / "rows/report.html").find("001 optimizer.lr=0.1"), std::string::npos);
}

TEST_F(SweepProgram, LeavesNoFolderIfEveryRunIsRefused) {
  EXPECT_EQ(run(fit({"--sweep", "optimizer.lrr=0.1,0.2"})), 2);
  EXPECT_EQ(output(),
            "command line: optimizer.lrr=0.1: error: unknown key 'optimizer.lrr'; did you mean "
            "'optimizer.lr'?\n1 error, nothing was run; run 1 of 2, all of which are refused\n");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "tiny"));
  EXPECT_EQ(run(fit({"--sweep", "optimizer.lr=0.1,0.2", "trainer.max_epochs=1"})), 0) << output();
}

// The config is valid, but no fit can start with it.
TEST_F(SweepProgram, LeavesNoFolderIfNoRunCanStart) {
  EXPECT_EQ(run(fit({"model.num_classes=5", "--sweep", "optimizer.lr=0.1,0.2"})), 2);
  EXPECT_EQ(
      output(),
      "command line: model.num_classes=5: error: 'model.num_classes': class 9 in the data (training "
      "sample 6, counted from 0), but num_classes = 5; expected: labels from 0 to 4; set num_classes to "
      "10, or correct the labels\n1 error, nothing was run; run 1 of 2, all of which are refused\n");
  write_text(scratch_ / "missing.toml", "[sweep]\nconfig = [\"tiny.toml\"]\n[parameters]\nseed = [1]\n");
  EXPECT_EQ(run({"sweep", (scratch_ / "missing.toml").string(), "data.name=mnist",
                 "data.root=" + (scratch_ / "nope").string(), "run.dir=" + scratch_.folder().string()}),
            3);
  EXPECT_NE(output().find("train-images-idx3-ubyte[.gz]: no such file"), std::string::npos) << output();
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "tiny"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "missing"));
}

TEST_F(SweepProgram, TrainsTheRunsThatCanStart) {
  EXPECT_EQ(run(fit({"--sweep", "model.num_classes=5,10", "trainer.max_epochs=1"})), 0) << output();
  const auto rows = table("tiny");
  EXPECT_EQ(rows[0]["status"], "refused");
  EXPECT_EQ(rows[1]["status"], "finished");
}

TEST_F(SweepProgram, ReportsAMissingConfigAsAFitDoes) {
  EXPECT_EQ(run({"fit", "nope.toml", "--sweep", "seed=0..1"}), 2);
  EXPECT_EQ(output(), "nope.toml: no such file; expected: a config file (TOML)\n");
}

TEST_F(SweepProgram, DoesNotRepeatFinishedRuns) {
  const auto words = fit({"--sweep", "seed=0..1", "trainer.max_epochs=1"});
  ASSERT_EQ(run(words), 0) << output();
  const std::string csv = text_of(scratch_ / "tiny/table.csv");
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "run,seed,status,monitor,best,best_epoch,epochs,steps,note");
  const auto written = std::filesystem::last_write_time(scratch_ / "tiny/001/0001/run.json");
  ASSERT_EQ(run(words), 0) << output();
  EXPECT_NE(output().find("2 runs, 2 already ended"), std::string::npos) << output();
  ASSERT_EQ(run({"sweep", (scratch_ / "tiny").string(), "--json"}), 0) << output();
  EXPECT_EQ(nlohmann::json::parse(output())["runs"], table("tiny"));
  EXPECT_EQ(std::filesystem::last_write_time(scratch_ / "tiny/001/0001/run.json"), written);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "tiny/001/0002"));
  EXPECT_EQ(text_of(scratch_ / "tiny/table.csv"), csv);
}

TEST_F(SweepProgram, RefusesAChangedSweep) {
  ASSERT_EQ(run(fit({"--sweep", "seed=0", "trainer.max_epochs=1"})), 0) << output();
  EXPECT_EQ(run(fit({"--sweep", "seed=1", "trainer.max_epochs=2"})), 2);
  EXPECT_EQ(output(), (scratch_ / "tiny").string() +
                          ": the sweep differs from the one that was started here:\n"
                          "  overrides: was trainer.max_epochs=1, now trainer.max_epochs=2\n"
                          "  run 001: seed: was 0, now 1\n"
                          "nothing was run; undo these changes, or start another sweep with name=NAME\n");
  write_text(scratch_ / "tiny.toml", text_of(tiny()) + "#\n");
  EXPECT_EQ(run({"sweep", (scratch_ / "tiny").string()}), 2);
  EXPECT_NE(output().find("tiny.toml: its text has changed"), std::string::npos) << output();
}

TEST_F(SweepProgram, RefusesTheDirectoryOfSomethingElse) {
  std::filesystem::create_directory(scratch_ / "tiny");
  write_text(scratch_ / "tiny/thesis.tex", "");
  EXPECT_EQ(run(fit({"--sweep", "seed=0"})), 2);
  EXPECT_NE(output().find("not the directory of a sweep"), std::string::npos) << output();
}

TEST_F(SweepProgram, ListsAndChecksItsRunsWithoutRunningThem) {
  EXPECT_EQ(run(fit({"--sweep", "optimizer.lr=0.1,x", "--check"})), 2);
  EXPECT_NE(output().find("001   0.1            valid"), std::string::npos) << output();
  EXPECT_NE(output().find("002   x              refused"), std::string::npos) << output();
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "tiny"));
  EXPECT_EQ(run({"sweep", (kConfigs / "sweep.toml").string(), "--check"}), 0) << output();
  EXPECT_NE(output().find("6 runs, nothing was run"), std::string::npos) << output();
}

TEST_F(SweepProgram, SavesItsRunsWhenInterruptedAndResumes) {
  const auto words = fit({"--sweep", "seed=0..1", "trainer.max_epochs=400", "--jobs", "2"});
  Process sweep(words, scratch_ / "output.txt");
  const auto has_epochs = [&](const char* run) {
    return text_of(scratch_ / (std::string("tiny/") + run + "/0001/metrics.csv")).size() > 400;
  };
  sweep.wait_until([&] { return has_epochs("001") && has_epochs("002"); });
  sweep.send(SIGINT);
  EXPECT_EQ(sweep.wait(), 128 + SIGINT) << output();
  EXPECT_NE(output().find("resume with   kindling sweep " + (scratch_ / "tiny").string()), std::string::npos)
      << output();
  for (const auto& row : table("tiny")) EXPECT_EQ(row["status"], "interrupted");
  ASSERT_EQ(run(words), 0) << output();
  for (const auto& row : table("tiny")) {
    EXPECT_EQ(row["status"], "finished");
    EXPECT_EQ(row["epochs"], 400);
  }
  const auto summary = nlohmann::json::parse(text_of(scratch_ / "tiny/001/0001/run.json"));
  EXPECT_GT(summary["resumed_from_step"].get<int>(), 0);
}

TEST_F(SweepProgram, ContinuesAfterACrashAndTriesTheRunAgain) {
  const auto words = fit({"--sweep", "seed=0..1", "trainer.max_epochs=300"});
  Process sweep(words, scratch_ / "output.txt");
  sweep.wait_until([&] { return text_of(scratch_ / "tiny/001/0001/metrics.csv").size() > 400; });
  for (const pid_t child : children_of(sweep.id())) ::kill(child, SIGKILL);
  EXPECT_EQ(sweep.wait(), 0) << output();
  EXPECT_EQ(table("tiny")[0]["status"], "failed");
  EXPECT_TRUE(table("tiny")[0]["note"].get<std::string>().starts_with("exit code 137"));
  EXPECT_EQ(table("tiny")[1]["status"], "finished");
  ASSERT_EQ(run(words), 0) << output();
  for (const auto& row : table("tiny")) EXPECT_EQ(row["epochs"], 300);
}

TEST_F(SweepProgram, MedianStoppingEndsBadRuns) {
  write_text(scratch_ / "median.toml", R"([sweep]
config = ["tiny.toml"]
dir = ")" + scratch_.folder().string() + R"("
median_stopping = true
median_min_runs = 2
[parameters]
optimizer.lr = [0.1, 0.2, 1e-9]
)");
  ASSERT_EQ(run({"sweep", (scratch_ / "median.toml").string(), "trainer.max_epochs=3000",
                 "checkpoint.every_n_steps=1000", "trainer.max_time=00:00:00:01"}),
            0)
      << output();
  const auto rows = table("median");
  EXPECT_EQ(rows[2]["status"], "median") << output();
  EXPECT_EQ(rows[2]["epochs"], 1);
  EXPECT_EQ(rows[2]["best_epoch"], 1);
  EXPECT_EQ(nlohmann::json::parse(text_of(scratch_ / "median/median_stops.json")),
            (nlohmann::json{{"003", 1}}));
}

// As the tasks of an array of SLURM do.
TEST_F(SweepProgram, SharedByProcessesTrainsEachRunOnce) {
  const auto words = [&](const std::string& name) {
    return fit(
        {"--sweep", "seed=0..5", "trainer.max_epochs=20", "checkpoint.every_n_steps=20", "--name", name});
  };
  ASSERT_EQ(run(words("alone")), 0) << output();
  std::list<Process> processes;
  for (const char* file : {"a.txt", "b.txt", "c.txt"})
    processes.emplace_back(words("shared"), scratch_ / file);
  for (Process& process : processes) EXPECT_EQ(process.wait(), 0) << text_of(scratch_ / "a.txt");
  EXPECT_EQ(text_of(scratch_ / "shared/table.csv"), text_of(scratch_ / "alone/table.csv"));
  for (int i = 1; i <= 6; ++i) {
    const std::string run = "shared/00" + std::to_string(i);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / (run + "/0002")));
    const std::string starts = text_of(scratch_ / (run + "/0001/command.txt"));
    EXPECT_EQ(std::ranges::count(starts, '\n'), 1) << starts;
  }
}

// The name of the run that a process of a sweep is training; empty: none.
std::string run_of(pid_t sweep) {
  for (const pid_t child : children_of(sweep)) {
    const std::string command = text_of("/proc/" + std::to_string(child) + "/cmdline");
    const std::string start = std::string(1, '\0') + "name=";
    if (const auto at = command.find(start); at != std::string::npos)
      return command.c_str() + at + start.size();
  }
  return "";
}

TEST_F(SweepProgram, ContinuesTheRunOfAnotherProcessThatWasKilled) {
  const auto words = [&](const std::string& name) {
    return fit(
        {"--sweep", "seed=0..4", "trainer.max_epochs=100", "checkpoint.every_n_steps=20", "--name", name});
  };
  ASSERT_EQ(run(words("alone")), 0) << output();
  Process killed(words("shared"), scratch_ / "killed.txt");
  Process second(words("shared"), scratch_ / "second.txt");
  Process third(words("shared"), scratch_ / "third.txt");
  std::string taken;
  killed.wait_until([&] {
    taken = run_of(killed.id());
    return text_of(scratch_ / ("shared/" + taken + "/0001/metrics.csv")).size() > 400;
  });
  killed.send(SIGKILL);
  EXPECT_EQ(killed.wait(), 128 + SIGKILL) << text_of(scratch_ / "killed.txt");
  EXPECT_EQ(second.wait(), 0) << text_of(scratch_ / "second.txt");
  EXPECT_EQ(third.wait(), 0) << text_of(scratch_ / "third.txt");
  EXPECT_EQ(text_of(scratch_ / "shared/table.csv"), text_of(scratch_ / "alone/table.csv"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / ("shared/" + taken + "/0002")));
  const auto summary = nlohmann::json::parse(text_of(scratch_ / ("shared/" + taken + "/0001/run.json")));
  EXPECT_GT(summary["resumed_from_step"].get<int>(), 0);
}

TEST_F(SweepProgram, DoesNotRepeatWhatHasFailedInAnotherProcess) {
  const auto words = fit({"--sweep", "optimizer.lr=0.1,-1", "trainer.max_epochs=100"});
  Process first(words, scratch_ / "first.txt");
  first.wait_until([&] { return std::filesystem::exists(scratch_ / "tiny/001/0001/metrics.csv"); });
  EXPECT_EQ(run(words), 0);
  EXPECT_NE(output().find("1 run in other processes of this sweep"), std::string::npos) << output();
  EXPECT_EQ(first.wait(), 0) << text_of(scratch_ / "first.txt");
  EXPECT_EQ(table("tiny")[0]["status"], "finished");
  EXPECT_EQ(table("tiny")[1]["status"], "refused");
  const auto attempt = [&] {
    return nlohmann::json::parse(text_of(scratch_ / "tiny/002/last_end.json"))["attempt"];
  };
  EXPECT_EQ(attempt(), 1);
  ASSERT_EQ(run(words), 0) << output();
  EXPECT_EQ(attempt(), 2);
}

// Each of the ranks is another process of the sweep.
TEST_F(SweepProgram, DoesNotPassOnTheRanksOfALauncher) {
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const int code = run(fit({"--sweep", "seed=0", "trainer.max_epochs=1", "distributed.timeout_s=5"}));
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(code, 0) << output();
  EXPECT_EQ(nlohmann::json::parse(text_of(scratch_ / "tiny/001/0001/run.json"))["processes"], 1);
}

// The number of runs and kills: 6 and 3, or those of the long form.
int soak_count(const char* variable, int count) {
  const char* set = std::getenv(variable);
  return set == nullptr ? count : std::atoi(set);
}

TEST_F(SweepProgram, KilledAtRandomEndsWithTheTableOfAnUndisturbedOne) {
  const int num_runs = soak_count("KINDLING_SOAK_SWEEP_RUNS", 6), num_kills = 3;
  const auto words = [&](const std::string& name) {
    return fit({"--sweep", "seed=0.." + std::to_string(num_runs / 2 - 1), "--sweep", "optimizer.lr=0.05,0.2",
                "trainer.max_epochs=40", "--jobs", "2", "--name", name});
  };
  ASSERT_EQ(run(words("alone")), 0) << output();
  std::mt19937 random(5);
  for (int kill = 0; kill < num_kills; ++kill) {
    const int number = 1 + kill * num_runs / 4 + static_cast<int>(random() % (num_runs / 4));
    const std::string name = std::string(number < 10 ? "killed/00" : "killed/0") + std::to_string(number);
    Process sweep(words("killed"), scratch_ / "output.txt");
    sweep.wait_until([&] { return std::filesystem::exists(scratch_ / name / "0001/metrics.csv"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    ASSERT_TRUE(sweep.is_running()) << output();
    sweep.send(SIGKILL);
    sweep.wait();
  }
  ASSERT_EQ(run(words("killed")), 0) << output();
  EXPECT_EQ(text_of(scratch_ / "killed/table.csv"), text_of(scratch_ / "alone/table.csv"));
  EXPECT_EQ(table("alone").size(), static_cast<std::size_t>(num_runs));
  for (const auto& row : table("killed")) EXPECT_EQ(row["status"], "finished");
}

}  // namespace
}  // namespace kindling
