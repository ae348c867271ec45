// kill -9 at random times: nothing is lost, and the results are identical.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

int num_kills() {
  const char* set = std::getenv("KINDLING_SOAK_KILLS");
  return set == nullptr ? 50 : std::atoi(set);
}

struct KilledFit {
  const char* name;
  const char* checkpoint;
  const char* trainer = "";
  const char* data = "";
};

class KilledRun : public testing::TestWithParam<KilledFit> {
 protected:
  std::vector<std::string> fit(const std::string& runs) const {
    return {"fit", "-c", config(), "checkpoint.resume=last", "--run.dir", (scratch_ / runs).string()};
  }
  std::string config() const { return (scratch_ / "small.toml").string(); }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }

  // The newest run: before its first checkpoint, a run is started again.
  std::filesystem::path last_run(const std::string& runs) const {
    std::filesystem::path last;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_ / runs / "small"))
      last = std::max(last, entry.path());
    return last;
  }

  // The same command, until it ends by itself; returns how often it was killed.
  int run_with_kills(const std::string& runs, int most, std::mt19937& random) {
    int kills = 0;
    for (;;) {
      Process process(fit(runs), output());
      if (kills < most) {
        // Loading the program takes most of its life: nearly always a kill hits the training.
        if (random() % 8 != 0)
          process.wait_until([&] { return text_of(output()).find("total ") != std::string::npos; });
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
        process.send(SIGKILL);
      }
      const int exit_code = process.wait();
      if (exit_code == 0) return kills;
      EXPECT_EQ(exit_code, 128 + SIGKILL) << text_of(output());
      if (exit_code != 128 + SIGKILL) return kills;
      ++kills;
    }
  }

  const Scratch scratch_;
};

TEST_P(KilledRun, EndsLikeAnUninterruptedRun) {
  write_small_cnn(config(), GetParam().checkpoint, GetParam().trainer, GetParam().data);
  ASSERT_EQ(run_process(fit("alone"), output()), 0) << text_of(output());
  const int wanted = num_kills() / 4 + 1;
  std::mt19937 random(static_cast<std::uint32_t>(wanted));
  int kills = 0, runs = 0;
  while (kills < wanted && !HasFailure()) {
    const std::string name = "killed" + std::to_string(runs++);
    kills += run_with_kills(name, wanted - kills, random);
    expect_same_run(last_run(name), scratch_ / "alone/small/0001");
  }
  std::cout << "[          ] " << kills << " kills in " << runs << " runs\n";
}

INSTANTIATE_TEST_SUITE_P(All, KilledRun,
                         // "augmented": each sample draws random numbers, on threads that the kill ends, too.
                         testing::Values(KilledFit{"every_step", "every_n_steps = 1"},
                                         KilledFit{"some_steps", "every_n_steps = 7"},
                                         KilledFit{"asynchronous", "every_n_steps = 2\nasynchronous = true"},
                                         KilledFit{"until_a_step", "every_n_steps = 5\nevery_n_epochs = 0",
                                                   "max_steps = 115"},
                                         KilledFit{"augmented", "every_n_steps = 3", "gradient_shards = 4",
                                                   "num_workers = 2\nsampler = \"balanced\"\n"
                                                   "[[data.train_transforms]]\nname = \"random_crop\"\n"
                                                   "size = [8, 8]\npadding = 1\n"
                                                   "[[data.train_transforms]]\n"
                                                   "name = \"random_horizontal_flip\"\n"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kindling
