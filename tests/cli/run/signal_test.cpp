// Signals at random times, as from a user or a cluster: nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/places_tried.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};

class SignalledRun : public testing::Test {
 protected:
  // Saves only on a signal and at the end.
  SignalledRun() { write_small_cnn(scratch_ / "small.toml", "every_n_epochs = 0"); }

  std::vector<std::string> fit(const std::string& runs) const {
    return {"fit", "-c", (scratch_ / "small.toml").string(), "--run.dir", (scratch_ / runs).string()};
  }
  std::filesystem::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }
  void wait_for_training(Process& process) const {
    process.wait_until([&] { return text_of(output()).find("total ") != std::string::npos; });
  }

  std::int64_t saved_step(const std::string& runs) const {
    return newest_valid_checkpoint(run(runs) / "checkpoints").value().global_step;
  }

  // Stops a new run again and again until it is done; returns the number of signals that have stopped it.
  int stop_and_go_on(const std::string& runs, int most, std::mt19937& random) {
    std::vector<std::string> words = fit(runs);
    for (int stops = 0;; ++stops) {
      Process process(words, output());
      wait_for_training(process);
      const int signal = kStops[random() % std::size(kStops)];
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
      if (stops < most) process.send(signal);
      if (stops < most && random() % 2 == 0) process.send(signal);  // as SLURM does
      const int exit_code = process.wait();
      const auto summary = nlohmann::json::parse(text_of(run(runs) / "run.json"));
      EXPECT_EQ(summary["global_step"], saved_step(runs));
      if (exit_code == 0) {
        EXPECT_EQ(summary["status"], "finished");
        return stops;
      }
      EXPECT_EQ(exit_code, 128 + signal) << text_of(output());
      EXPECT_EQ(summary["status"], "stopped");
      const std::string command = "kindling fit --resume " + run(runs).string() + "\n";
      EXPECT_TRUE(text_of(output()).ends_with(command)) << text_of(output());
      if (HasFailure()) return stops;
      words = {"fit", "--resume", run(runs).string()};
    }
  }

  const Scratch scratch_;
};

TEST_F(SignalledRun, StopsAtASavedStepAndResumesExactly) {
  ASSERT_EQ(run_process(fit("alone"), output()), 0) << text_of(output());
  std::mt19937 random(9);
  constexpr int kWanted = 60 / kPlaceStride;
  int stops = 0, runs = 0;
  while (stops < kWanted && !HasFailure()) {
    const std::string name = "stopped" + std::to_string(runs++);
    stops += stop_and_go_on(name, kWanted - stops, random);
    expect_same_run(run(name), run("alone"));
  }
  std::cout << "[          ] " << stops << " stops in " << runs << " runs\n";
}

TEST_F(SignalledRun, SavesOnRequestAndContinues) {
  std::vector<std::string> words = fit("saved");
  words.push_back("trainer.max_epochs=1000000");
  Process process(words, output());
  wait_for_training(process);
  std::mt19937 random(10);
  // A step may be saved twice, before and after the validation that follows it.
  auto latest = std::filesystem::file_time_type::min();
  const auto last_save = [&] {
    auto last = std::filesystem::file_time_type::min();
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(run("saved") / "checkpoints", ignored))
      if (entry.path().filename().string().starts_with("step-"))
        last = std::max(last, entry.last_write_time(ignored));
    return last;
  };
  constexpr int kSignals = 40;
  for (int i = 0; i < kSignals && process.is_running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    process.send(SIGUSR1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    process.wait_until([&] { return last_save() > latest || std::chrono::steady_clock::now() > end; });
    ASSERT_GT(last_save(), latest) << "signal " << i;
    latest = last_save();
  }
  ASSERT_TRUE(process.is_running()) << text_of(output());
  process.send(SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  std::cout << "[          ] " << kSignals << " saves on request\n";
}

// --- From exec to exit ---

int num_moments() {
  const char* set = std::getenv("KINDLING_SOAK_SIGNALS");
  return set == nullptr ? static_cast<int>(5 / kPlaceStride) + 1 : std::atoi(set);
}

class SignalFromExecToExit : public testing::TestWithParam<int> {
 protected:
  SignalFromExecToExit() {
    write_small_cnn(scratch_ / "small.toml", "every_n_epochs = 1\nresume = \"last\"");
    const auto start = Clock::now();
    EXPECT_EQ(run_process(fit("alone"), output()), 0) << text_of(output());
    duration_ = Clock::now() - start;
  }

  using Clock = std::chrono::steady_clock;
  std::vector<std::string> fit(const std::string& runs) const {
    return {"fit",
            "-c",
            (scratch_ / "small.toml").string(),
            "trainer.max_epochs=2",
            "--run.dir",
            (scratch_ / runs).string()};
  }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }

  // Sends the signal once; returns the exit code.
  int fit_with_signal(const std::string& runs, double fraction) const {
    Process process(fit(runs), output());
    if (!is_stop()) process.wait_until([&] { return survives_early_signals(process.id()); });
    std::this_thread::sleep_for(fraction * duration_);
    process.send(GetParam());
    return process.wait();
  }
  bool is_stop() const { return std::ranges::find(kStops, GetParam()) != std::end(kStops); }

  const Scratch scratch_;
  Clock::duration duration_{};
};

TEST_P(SignalFromExecToExit, EndsAsDocumentedAndLosesNothing) {
  std::mt19937 random(11);
  int stops = 0;
  for (int i = 0; i < num_moments() && !HasFailure(); ++i) {
    const double fraction = std::uniform_real_distribution(0.0, 1.05)(random);
    SCOPED_TRACE("moment " + std::to_string(fraction));
    const std::string runs = "runs" + std::to_string(i);
    const int exit_code = fit_with_signal(runs, fraction);
    if (exit_code != 0) {
      EXPECT_TRUE(is_stop()) << text_of(output());
      EXPECT_EQ(exit_code, 128 + GetParam()) << text_of(output());
      ++stops;
      const auto summary = scratch_ / runs / "small/0001/run.json";
      if (std::filesystem::exists(summary)) {
        const auto stopped = nlohmann::json::parse(text_of(summary));
        EXPECT_EQ(stopped["status"], "stopped");
        const auto checkpoints = summary.parent_path() / "checkpoints";
        if (std::filesystem::exists(checkpoints))
          EXPECT_TRUE(newest_valid_checkpoint(checkpoints));
        else
          EXPECT_EQ(stopped["global_step"], 0) << "only a run that has not trained may have no checkpoint";
      }
      EXPECT_EQ(run_process(fit(runs), output()), 0) << text_of(output());
    }
    std::filesystem::path last;  // a start that was stopped before its first step is repeated
    for (const auto& entry : std::filesystem::directory_iterator(scratch_ / runs / "small"))
      last = std::max(last, entry.path());
    expect_same_run(last, scratch_ / "alone/small/0001");
    std::filesystem::remove_all(scratch_ / runs);
  }
  std::cout << "[          ] " << num_moments() << " signals, " << stops << " stops\n";
}

INSTANTIATE_TEST_SUITE_P(All, SignalFromExecToExit,
                         testing::Values(SIGUSR1, SIGPIPE, SIGXFSZ, SIGHUP, SIGINT, SIGTERM),
                         [](const auto& info) { return std::string("SIG") + ::sigabbrev_np(info.param); });

TEST_F(SignalledRun, SurvivesSignalsDuringLibraryConstructors) {
  if (std::string_view(KINDLING_RAISE_AT_START).empty())
    GTEST_SKIP() << "the sanitizer's library comes first";
  ::setenv("LD_PRELOAD", KINDLING_RAISE_AT_START, 1);
  const int of_fit = run_process(fit("early"), output()),
            of_others = run_process({"list", "models"}, output());
  ::unsetenv("LD_PRELOAD");
  EXPECT_EQ(of_fit, 0);
  EXPECT_EQ(of_others, 0);
}

TEST_F(SignalledRun, SurvivesAHangupUnderNohup) {
  ::signal(SIGHUP, SIG_IGN);
  Process process(fit("nohup"), output());
  ::signal(SIGHUP, SIG_DFL);
  wait_for_training(process);
  process.send(SIGHUP);
  EXPECT_EQ(process.wait(), 0) << text_of(output());
}

}  // namespace
}  // namespace kindling
