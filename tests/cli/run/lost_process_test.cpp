// One of several ranks is lost at a random time: the others exit, and the resumed run is bit-identical to an
// undisturbed one.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/places_tried.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// The long form has 50.
int num_losses() {
  const char* set = std::getenv("KINDLING_SOAK_LOSSES");
  return set == nullptr ? (kPlaceStride == 1 ? 6 : 3) : std::atoi(set);
}

struct Loss {
  const char* name;
  int signal;
};
constexpr Loss kLosses[] = {{"killed", SIGKILL}, {"stopped", SIGSTOP}, {"left with 1", SIGUSR2}};

// The longest time that a step may wait for a stopped process.
constexpr int kTimeout_s = 4;

class LostProcess : public testing::Test {
 protected:
  LostProcess() {
    write_small_cnn(scratch_ / "small.toml", "every_n_steps = 5\n");
    ::setenv("LD_PRELOAD", KINDLING_EXIT_ON_SIGNAL, 1);
  }
  ~LostProcess() override { ::unsetenv("LD_PRELOAD"); }

  std::vector<std::string> fit(const std::string& runs, std::size_t size) const {
    return {"fit",
            "-c",
            (scratch_ / "small.toml").string(),
            "--run.dir",
            (scratch_ / runs).string(),
            "trainer.max_epochs=3",
            "trainer.num_processes=" + std::to_string(size),
            "data.batch_size=" + std::to_string(48 / size)};
  }
  std::filesystem::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }
  std::string said() const { return text_of(output()); }

  std::filesystem::path undisturbed(std::size_t size) {
    const std::string runs = "whole" + std::to_string(size);
    if (!std::filesystem::exists(run(runs))) {
      EXPECT_EQ(run_process(fit(runs, size), output()), 0) << said();
    }
    return run(runs);
  }

  // While the program is loading, or after this many logged steps.
  void wait_for_moment(Process& process, const std::string& runs, std::size_t size) {
    process.wait_until([&] { return children_of(process.id()).size() == size; });
    if (random_() % 5 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 1000));
      return;
    }
    const auto target = static_cast<std::ptrdiff_t>(random_() % 95);
    process.wait_until(
        [&] { return std::ranges::count(text_of(run(runs) / "metrics.jsonl"), '\n') >= target; });
  }

  // Seconds until the others have exited as well; empty if the process had already finished.
  std::optional<double> lose_one(Process& process, const Loss& loss, std::size_t size) {
    const auto children = children_of(process.id());
    if (children.size() != size) return std::nullopt;
    const std::size_t victim = random_() % size;
    const auto start = std::chrono::steady_clock::now();
    ::kill(children[victim], loss.signal);
    process.wait();
    for (const pid_t child : children) EXPECT_EQ(::kill(child, 0), -1) << child;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void go_on(const std::string& runs, std::size_t size) const {
    const std::filesystem::path checkpoints = run(runs) / "checkpoints";
    const bool has_one =
        std::filesystem::is_directory(checkpoints) && newest_valid_checkpoint(checkpoints).has_value();
    if (!has_one) std::filesystem::remove_all(scratch_ / runs);
    const auto words =
        has_one ? std::vector<std::string>{"fit", "--resume", run(runs).string()} : fit(runs, size);
    ASSERT_EQ(run_process(words, output()), 0) << said();
  }

  std::mt19937 random_{static_cast<std::uint32_t>(num_losses())};
  const Scratch scratch_;
};

// In every second case, the program restarts the processes itself.
TEST_F(LostProcess, EndsTheOtherRanksOnly) {
  std::map<std::string, std::vector<double>> seconds;
  int num_late = 0;
  const std::size_t num_kinds = std::string_view(KINDLING_EXIT_ON_SIGNAL).empty() ? 2 : std::size(kLosses);
  for (int i = 0; i < num_losses() && !HasFailure(); ++i) {
    const auto size = static_cast<std::size_t>(2 + i % 3);
    const Loss& loss = kLosses[static_cast<std::size_t>(i + i / 3) % num_kinds];
    const std::string runs = std::to_string(i);
    SCOPED_TRACE(runs + ": one of " + std::to_string(size) + " is " + loss.name);
    const std::filesystem::path whole = undisturbed(size);
    auto words = fit(runs, size);
    const bool restarts = i % 2 == 1;
    if (restarts) words.push_back("distributed.max_restarts=1");
    if (loss.signal == SIGSTOP) words.push_back("distributed.timeout_s=" + std::to_string(kTimeout_s));
    {
      Process process(words, output());
      wait_for_moment(process, runs, size);
      const auto taken = lose_one(process, loss, size);
      const int code = process.wait();
      const bool is_lost = said().find("process ") != std::string::npos;
      num_late += is_lost ? 0 : 1;
      if (taken && is_lost && !restarts) seconds[loss.name].push_back(*taken);
      EXPECT_EQ(code != 0, is_lost && !restarts) << said();
    }
    if (!restarts) go_on(runs, size);
    expect_same_run(run(runs), whole);
    std::filesystem::remove_all(scratch_ / runs);
  }
  for (const auto& [name, all] : seconds)
    std::cout << "[          ] " << name << ", " << all.size() << " times: the others had left after at most "
              << *std::ranges::max_element(all) << " s\n";
  std::cout << "[          ] " << num_late << " came too late\n";
}

}  // namespace
}  // namespace kindling
