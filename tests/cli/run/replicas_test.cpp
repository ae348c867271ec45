// Data-parallel results are bit-identical, also if a process is lost on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/places_tried.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Words = std::vector<std::string>;

// Far above the cost of a lost process (seconds), so that busy machines and sanitizers stay below it; without
// detection the other ranks would wait for half an hour.
constexpr std::chrono::seconds kSoon(60);

class Replicas : public testing::Test {
 protected:
  Words fit(const std::string& runs, int num_processes, const Words& more = {}) const {
    Words words{"fit",
                "-c",
                (scratch_ / "small.toml").string(),
                "--run.dir",
                (scratch_ / runs).string(),
                "trainer.num_processes=" + std::to_string(num_processes),
                "data.batch_size=" + std::to_string(64 / num_processes)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::filesystem::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }
  void expect_success(const Words& words) const {
    ASSERT_EQ(run_process(words, output()), 0) << text_of(output());
  }
  void expect_same_weights(const std::string& runs, const std::string& expected) const {
    EXPECT_TRUE(text_of(run(runs) / "weights.safetensors") == text_of(run(expected) / "weights.safetensors"))
        << runs << " and " << expected;
  }

  const Scratch scratch_;
};

// 69 steps, each epoch's last one of a batch that is not full; dropout, batch statistics, clipping, AdamW.
// One thread: a processor without others would measure which number is faster, and each adds in an order of
// its own.
TEST_F(Replicas, GradientShardsAreBitIdenticalForAllNumbersOfRanks) {
  write_small_cnn(scratch_ / "small.toml", "", "gradient_shards = 4\nnum_threads = 1\n");
  for (const char* step_graph : {"off", "on"}) {
    const std::string graph(step_graph);
    const Words more{"trainer.max_epochs=3", "trainer.step_graph=" + graph};
    for (const int size : {1, 2, 4}) expect_success(fit(graph + std::to_string(size), size, more));
    expect_same_weights(graph + "2", graph + "1");
    expect_same_weights(graph + "4", graph + "1");
  }
  expect_same_weights("on1", "off1");
  expect_success(fit("none", 1, {"trainer.max_epochs=3", "trainer.gradient_shards=1"}));
  EXPECT_NE(text_of(run("none") / "weights.safetensors"), text_of(run("off1") / "weights.safetensors"));
}

// Windows of three batches, the last one of an epoch of two.
TEST_F(Replicas, GradientShardsWithAccumulationAreBitIdenticalForAllNumbersOfRanks) {
  write_small_cnn(scratch_ / "small.toml", "",
                  "gradient_shards = 4\nnum_threads = 1\naccumulate_grad_batches = 3\n");
  for (const auto& [graph, size] : {std::pair{"off", 1}, std::pair{"off", 2}, std::pair{"off", 4},
                                    std::pair{"on", 1}, std::pair{"on", 2}})
    expect_success(fit(graph + std::to_string(size), size,
                       {"trainer.max_epochs=3", std::string("trainer.step_graph=") + graph}));
  for (const char* other : {"off2", "off4", "on1", "on2"}) expect_same_weights(other, "off1");
}

TEST_F(Replicas, GradientShardsResumeWithAnotherNumberOfRanks) {
  write_small_cnn(scratch_ / "small.toml", "", "gradient_shards = 4\nnum_threads = 1\n");
  const Words no_schedule{"schedule.name=constant"};
  expect_success(fit("whole", 1, {"trainer.max_epochs=3", no_schedule[0]}));
  expect_success(fit("parts", 2, {"trainer.max_epochs=1", no_schedule[0]}));
  for (const auto& [size, epochs] : {std::pair{4, 2}, std::pair{1, 3}})
    expect_success({"fit", "--resume", run("parts").string(), "--allow-config-change",
                    "trainer.max_epochs=" + std::to_string(epochs),
                    "trainer.num_processes=" + std::to_string(size),
                    "data.batch_size=" + std::to_string(64 / size)});
  expect_same_weights("parts", "whole");
}

TEST_F(Replicas, ResumeBitIdenticallyAfterALostProcess) {
  write_small_cnn(scratch_ / "small.toml", "every_n_steps = 5\n");
  expect_success(fit("whole", 2));
  std::mt19937 random(7);
  int num_kills = 0;
  constexpr int kRounds = kPlaceStride == 1 ? 3 : 1;
  for (int round = 0; round < kRounds; ++round) {
    const std::string runs = "killed" + std::to_string(round);
    Words words = fit(runs, 2);
    for (int attempt = 0; attempt < 20; ++attempt) {
      Process process(words, output());
      // The last attempts are not disturbed.
      const auto num_records = [&] {
        const std::string text = text_of(run(runs) / "metrics.jsonl");
        return std::ranges::count(text, '\n');
      };
      const auto target = num_records() + 1 + static_cast<std::ptrdiff_t>(random() % 30);
      process.wait_until([&] { return attempt >= 4 || num_records() >= target; });
      const auto children = children_of(process.id());
      if (attempt < 4 && children.size() == 2 && process.is_running()) {
        ::kill(children[random() % 2], SIGKILL);
        const auto start = std::chrono::steady_clock::now();
        const int code = process.wait();
        EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
        num_kills += code == 128 + SIGKILL ? 1 : 0;
      }
      const bool is_done = process.wait() == 0;
      if (is_done) break;
      const std::filesystem::path checkpoints = run(runs) / "checkpoints";
      if (std::filesystem::is_directory(checkpoints) && newest_valid_checkpoint(checkpoints))
        words = {"fit", "--resume", run(runs).string()};
      else
        std::filesystem::remove_all(scratch_ / runs);
    }
    expect_same_run(run(runs), run("whole"));
  }
  EXPECT_GE(num_kills, 2 * kRounds);
}

TEST_F(Replicas, EndWithinTheTimeoutIfOneHangs) {
  write_small_cnn(scratch_ / "small.toml");
  for (const std::size_t victim : {0, 1}) {
    Process process(
        fit("stopped" + std::to_string(victim), 2, {"trainer.max_epochs=1000000", "distributed.timeout_s=2"}),
        output());
    process.wait_until([&] { return text_of(output()).find("total ") != std::string::npos; });
    const auto children = children_of(process.id());
    ASSERT_EQ(children.size(), 2U);
    ::kill(children[victim], SIGSTOP);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NE(process.wait(), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
    EXPECT_NE(text_of(output()).find("did not answer for 2 s"), std::string::npos) << text_of(output());
    for (const pid_t child : children) EXPECT_EQ(::kill(child, 0), -1) << child;
  }
}

}  // namespace
}  // namespace kindling
