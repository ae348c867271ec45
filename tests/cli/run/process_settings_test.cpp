// The settings of the process, and how the program reports them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <thread>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "kindling/fast_mkl/fast_mkl.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

TEST(ProcessSettings, KeepFreedMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  ASSERT_EQ(run_program({"list", "models"}).exit_code, 0);
  constexpr std::int64_t kBytes = 31 << 20;  // glibc would map it, and give it back when it is freed
  const std::size_t num_mapped = mallinfo2().hblks;
  at::Tensor block = at::empty({kBytes}, at::kByte);
  EXPECT_EQ(mallinfo2().hblks, num_mapped);
  const std::size_t heap_bytes = mallinfo2().arena;
  block.reset();
  EXPECT_EQ(mallinfo2().arena, heap_bytes);
}

TEST(ProcessSettings, FlushDenormalsUnlessAskedNotTo) {
  const Scratch scratch;
  write_small_cnn(scratch / "small.toml");
  for (const bool flush : {false, true}) {
    std::vector<std::string> words{"fit", "-c", (scratch / "small.toml").string(), "trainer.max_steps=1",
                                   "run.dir=" + scratch.folder().string()};
    if (!flush) words.push_back("run.flush_denormal=false");
    ASSERT_EQ(run_program(words).exit_code, 0);
    const float denormal = at::full({1}, 1e-39F).mul(1).item<float>();
    EXPECT_EQ(denormal == 0, flush);
  }
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Each run in a separate process, because MKL chooses its kernels once.
class FastMklRun : public testing::Test {
 protected:
  void SetUp() override {
    write_small_cnn(scratch_ / "small.toml", "every_n_steps = 10");
    ASSERT_EQ(run_process({"doctor"}, scratch_ / "doctor.txt"), 0);
    is_needed_ = text_of(scratch_ / "doctor.txt").find("fast mkl    on\n") != std::string::npos;
  }
  void fit(const std::vector<std::string>& more) {
    std::vector<std::string> words{"fit", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    ASSERT_EQ(run_process(words, scratch_ / "out.txt"), 0) << output();
  }
  std::string config() const { return (scratch_ / "small.toml").string(); }
  std::string dir(const std::string& runs) const { return "run.dir=" + (scratch_ / runs).string(); }
  fs::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }
  std::string told(const std::string& runs) const {
    return nlohmann::json::parse(text_of(run(runs) / "run.json"))["fast_mkl"];
  }
  std::string output() const { return text_of(scratch_ / "out.txt"); }

  const Scratch scratch_;
  bool is_needed_ = false;
};

TEST_F(FastMklRun, MatchesConfigAndSummary) {
  if (!at::hasMKL()) GTEST_SKIP() << "this LibTorch has no MKL";
  const std::string on = is_needed_ ? "on" : "not needed: this is an Intel CPU";
  for (const auto& [setting, wanted] :
       {std::pair{"auto", on}, std::pair{"on", on}, std::pair{"off", is_needed_ ? "off" : on}}) {
    fit({"-c", config(), dir(setting), std::string("run.fast_mkl=") + setting, "trainer.max_steps=2"});
    EXPECT_EQ(told(setting), wanted);
  }
}

TEST_F(FastMklRun, ResumesWithOtherKernelsAndWarns) {
  if (!is_needed_) GTEST_SKIP() << "MKL takes the same kernels with and without";
  const std::string warning = R"(MKL's fast kernels were "on" before and are now "off")";
  const auto log = [&] { return text_of(run("runs") / "log.txt"); };
  fit({"-c", config(), dir("runs"), "trainer.max_steps=20"});
  EXPECT_EQ(log().find("kernels"), std::string::npos) << log();
  fit({"--resume", run("runs").string(), "run.fast_mkl=off", "trainer.max_steps=30"});
  EXPECT_NE(log().find(warning), std::string::npos) << log();
  EXPECT_EQ(told("runs"), "off");
  fit({"--resume", run("runs").string(), "trainer.max_steps=40"});  // the run's config says off by now
  EXPECT_EQ(log().find(warning), log().rfind(warning)) << log();
}

TEST_F(FastMklRun, WarnsIfTooLate) {
  if (!is_needed_) GTEST_SKIP() << "there is nothing to be late for";
  at::mm(at::ones({16, 16}), at::ones({16, 16}));
  ASSERT_EQ(fast_mkl_text(), "on");
  const ProgramRun late =
      run_program({"fit", "-c", config(), dir("late"), "trainer.max_steps=2", "run.fast_mkl=off"});
  EXPECT_EQ(late.exit_code, 0) << late.err;
  EXPECT_NE(late.err.find(R"(run.fast_mkl = "off" has no effect)"), std::string::npos) << late.err;
  EXPECT_EQ(told("late"), "on");
}

// In a process without OMP_NUM_THREADS.
TEST(ChosenThreads, AreKeptByTheRun) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "there is one core";
  const Scratch scratch;
  write_small_cnn(scratch / "small.toml");
  const std::string said = environment("OMP_NUM_THREADS");
  unsetenv("OMP_NUM_THREADS");
  const auto fit = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "fit");
    EXPECT_EQ(run_process(more, scratch / "out.txt"), 0);
    return text_of(scratch / "out.txt");
  };
  const std::string dir = "run.dir=" + (scratch / "runs").string(),
                    config = (scratch / "small.toml").string();
  const std::string first = fit({"-c", config, dir, "trainer.max_epochs=1"});
  const std::string again = fit({"-c", config, dir, "checkpoint.resume=last"});
  const std::string told = fit({"-c", config, dir, "trainer.max_epochs=1", "trainer.num_threads=2"});
  const std::string tried = fit({"-c", config, dir, "trainer.fast_dev_run=true"});
  if (!said.empty()) setenv("OMP_NUM_THREADS", said.c_str(), 1);

  const std::string begin = "threads   trainer.num_threads = ";
  ASSERT_NE(first.find(begin), std::string::npos) << first;
  const std::string number = first.substr(first.find(begin) + begin.size(), 1);
  const auto run = scratch / "runs/small/0001";
  EXPECT_NE(text_of(run / "config.toml").find("\nnum_threads = " + number), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(text_of(run / "run.json"))["threads"], std::stoi(number));
  EXPECT_NE(again.find("changed trainer.max_epochs 1 -> 6\n"), std::string::npos) << again;
  EXPECT_EQ(again.find(begin), std::string::npos) << again;
  EXPECT_EQ(told.find(begin), std::string::npos) << told;
  EXPECT_EQ(tried.find(begin), std::string::npos) << tried;
  EXPECT_NE(first.find(", because a step takes "), std::string::npos) << first;
  EXPECT_NE(first.find(" ms with 1, "), std::string::npos) << first;
}

}  // namespace
}  // namespace kindling
