// Signals at random times: what a person or a cluster sends loses nothing.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/places_tried.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class SignalledRun : public testing::Test {
 protected:
  // Only what a signal asks for is saved, and the end.
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
      const int signal = random() % 2 == 0 ? SIGINT : SIGTERM;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
      if (stops < most) process.send(signal);
      const int exit_code = process.wait();
      const auto summary = nlohmann::json::parse(text_of(run(runs) / "run.json"));
      EXPECT_EQ(summary["global_step"], saved_step(runs));
      // A signal behind the end of the training ends what is left of the process, as it does anywhere.
      if (exit_code == 0 || summary["status"] == "finished") return stops;
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

TEST_F(SignalledRun, StopsWhereItIsSavedAndGoesOnAsIfItHadNot) {
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

TEST_F(SignalledRun, SavesOnRequestAndGoesOn) {
  std::vector<std::string> words = fit("saved");
  words.push_back("trainer.max_epochs=1000000");
  Process process(words, output());
  wait_for_training(process);
  std::mt19937 random(10);
  // A step may be saved twice, before and after the validation behind it.
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

}  // namespace
}  // namespace kindling
