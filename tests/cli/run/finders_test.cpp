// The searches of a run before its training, from their tables in the config.
#include <ATen/ops/rand.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands/process.h"
#include "cli/config/run_config.h"
#include "cli/run/same_run.h"
#include "kindling/config/document.h"
#include "kindling/data/digits.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/lbfgs.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class Finders : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& tables) const {
    write_text(scratch_ / (name + ".toml"),
               "[model]\nname = \"small_cnn\"\nchannels = [4]\n[data]\nname = \"digits\"\nbatch_size = 64\n"
               "[trainer]\nmax_epochs = 2\nlimit_train_batches = 8\n" +
                   tables);
  }
  ProgramRun start(const std::string& name, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"fit", "-c", (scratch_ / (name + ".toml")).string(),
                                   "run.dir=" + (scratch_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  ProgramRun fit(const std::string& name, const std::string& tables,
                 std::vector<std::string> more = {}) const {
    write(name, tables);
    return start(name, std::move(more));
  }
  std::filesystem::path run(const std::string& name) const { return scratch_ / "runs" / name / "0001"; }
  // The value of a key in the config of the run; empty if it has none.
  std::string value(const std::string& name, const std::string& key) const {
    Registry registry;
    register_builtin(registry);
    const auto values = RunConfig(ConfigDocument::load(run(name) / "config.toml"), registry, name).values();
    return values.contains(key) ? values.at(key) : "";
  }
  static std::int64_t count(const std::string& text, const std::string& part) {
    std::int64_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  const Scratch scratch_;
};

const std::string kAdam = "[optimizer]\nname = \"adam\"\n";

TEST_F(Finders, TrainWithTheFoundRateAsIfConfigured) {
  const ProgramRun found = fit("found", kAdam + "[lr_finder]\nnum_training_steps = 40\n");
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const std::string lr = value("found", "optimizer.lr");
  EXPECT_GT(std::stod(lr), 1e-8);
  EXPECT_NE(lr, "0.001");
  EXPECT_EQ(count(found.out, "lr_finder   optimizer.lr = "), 1) << found.out;
  EXPECT_NE(found.out.find(" instead of 1e-3, 40 of 40 steps, lr_finder.svg\n"), std::string::npos)
      << found.out;
  EXPECT_NE(text_of(run("found") / "log.txt").find("lr_finder: optimizer.lr = "), std::string::npos);
  EXPECT_NE(text_of(run("found") / "lr_finder.svg").find("<svg"), std::string::npos);
  const std::string table = text_of(run("found") / "lr_finder.csv");
  EXPECT_TRUE(table.starts_with("lr,loss,smoothed_loss\n1e-08,")) << table;
  EXPECT_EQ(count(table, "\n"), 41);
  EXPECT_NE(table.find("\n" + lr + ","), std::string::npos) << lr;
  // Everything else is bit-identical.
  const ProgramRun written = fit("written", kAdam + "lr = " + lr + "\n");
  ASSERT_EQ(written.exit_code, 0) << written.err;
  expect_same_run(run("found"), run("written"));
  // And the config of the run contains all results.
  std::filesystem::copy(run("found") / "config.toml", scratch_ / "again.toml");
  ASSERT_EQ(start("again", {"name=again"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(run("again") / "lr_finder.svg"));
  EXPECT_TRUE(text_of(run("again") / "weights.safetensors") == text_of(run("found") / "weights.safetensors"));
}

TEST_F(Finders, ResumesKeepTheResult) {
  const std::string tables = kAdam +
                             "[[optimizer.groups]]\nmatch = \"*bias\"\nlr = 0.0001\n"
                             "[lr_finder]\nnum_training_steps = 40\n[batch_finder]\nmax_trials = 4\n";
  ASSERT_EQ(fit("whole", tables).exit_code, 0);
  ASSERT_EQ(fit("parts", tables, {"trainer.max_epochs=1"}).exit_code, 0);
  const std::string lr = value("parts", "optimizer.lr"), rate = value("parts", "optimizer.groups[0].lr");
  EXPECT_EQ(lr, value("whole", "optimizer.lr"));
  EXPECT_DOUBLE_EQ(std::stod(rate), 0.1 * std::stod(lr));  // the ratio of 1e-4 to 1e-3
  EXPECT_EQ(value("parts", "data.batch_size"), "16");
  const std::string log = text_of(run("whole") / "log.txt");
  EXPECT_LT(log.find("batch_finder: "), log.find("lr_finder: ")) << "the rate is that of the batches";
  // With the config that requests a search, and with that of the run.
  const ProgramRun resumed = start("parts", {"checkpoint.resume=last"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("lr_finder"), std::string::npos) << resumed.out;
  EXPECT_EQ(value("parts", "optimizer.lr"), lr);
  EXPECT_EQ(value("parts", "optimizer.groups[0].lr"), rate);
  EXPECT_EQ(count(text_of(run("parts") / "log.txt"), "lr_finder: "), 1);
  expect_same_run(run("parts"), run("whole"));
  const ProgramRun longer = run_program({"fit", "--resume", run("parts").string(), "trainer.max_epochs=3"});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(value("parts", "optimizer.lr"), lr);
  // Without a requested search, a changed rate is refused.
  const ProgramRun other =
      run_program({"fit", "--resume", run("parts").string(), "trainer.max_epochs=4", "optimizer.lr=0.5"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("optimizer.lr: was "), std::string::npos) << other.err;
}

TEST_F(Finders, PlotOnlyKeepsTheRate) {
  const ProgramRun run_of = fit("picture", kAdam + "lr = 0.002\n[lr_finder]\nupdate_attr = false\n");
  ASSERT_EQ(run_of.exit_code, 0) << run_of.err;
  EXPECT_NE(run_of.out.find("lr_finder   suggests "), std::string::npos) << run_of.out;
  EXPECT_NE(run_of.out.find(" instead of 2e-3, "), std::string::npos) << run_of.out;
  EXPECT_EQ(value("picture", "optimizer.lr"), "0.002");
  EXPECT_TRUE(std::filesystem::exists(run("picture") / "lr_finder.svg"));
}

TEST_F(Finders, QuietRunsReportOnlyToTheLog) {
  const ProgramRun run_of =
      fit("quiet", kAdam + "[lr_finder]\n[batch_finder]\nmax_trials = 2\n", {"--quiet"});
  ASSERT_EQ(run_of.exit_code, 0) << run_of.err;
  EXPECT_EQ(run_of.out.find("_finder"), std::string::npos) << run_of.out;
  EXPECT_NE(text_of(run("quiet") / "log.txt").find("lr_finder: optimizer.lr = "), std::string::npos);
}

TEST_F(Finders, KeepTheRateWithoutASuggestion) {
  const ProgramRun run_of = fit("few", kAdam + "lr = 0.002\n[lr_finder]\nnum_training_steps = 5\n");
  ASSERT_EQ(run_of.exit_code, 0) << run_of.err;
  EXPECT_NE(run_of.err.find("lr_finder: no suggestion, because the loss never falls"), std::string::npos)
      << run_of.err;
  EXPECT_NE(run_of.err.find("; 5 of 5 steps, lr_finder.svg"), std::string::npos) << run_of.err;
  EXPECT_EQ(value("few", "optimizer.lr"), "0.002");
}

TEST_F(Finders, AreSkippedInDevelopmentRuns) {
  const ProgramRun run_of =
      fit("dev", kAdam + "[lr_finder]\n[batch_finder]\n", {"trainer.fast_dev_run=true"});
  ASSERT_EQ(run_of.exit_code, 0) << run_of.err;
  EXPECT_NE(run_of.out.find("lr_finder   skipped, because trainer.fast_dev_run is set"), std::string::npos);
  EXPECT_EQ(value("dev", "data.batch_size"), "64");
}

TEST_F(Finders, AreOffWithoutTheirTables) {
  const std::string off = fit("off", kAdam, {"--print-config"}).out;
  EXPECT_EQ(off.find("_finder"), std::string::npos) << off;
  const std::string on = fit("on", kAdam + "[lr_finder]\n[batch_finder]\n", {"--print-config"}).out;
  for (const char* line :
       {"[lr_finder]", "min_lr = 1e-08", "max_lr = 1.0", "num_training_steps = 100", "mode = \"exponential\"",
        "early_stop_threshold = 4.0", "update_attr = true", "[batch_finder]", "mode = \"power\"",
        "steps_per_trial = 3", "init_val = 2", "max_trials = 25", "margin = 0.05"})
    EXPECT_NE(on.find(std::string("\n") + line), std::string::npos) << line << "\n" << on;
}

TEST_F(Finders, AreCheckedBeforeTheRun) {
  const auto expect = [&](const std::string& tables, const std::string& text) {
    const ProgramRun checked = fit("checked", tables, {"--check"});
    EXPECT_EQ(checked.exit_code, 2) << tables;
    EXPECT_NE(checked.err.find(text), std::string::npos) << checked.err;
  };
  expect("[lr_finder]\n", "'lr_finder' has no 'optimizer.lr' to set: name the optimizer in [optimizer]");
  expect(kAdam + "[lr_finder]\nmin_lr = 0.0\n", "'lr_finder.min_lr': expected a number > 0");
  expect(kAdam + "[lr_finder]\nmax_lr = -1.0\n", "'lr_finder.max_lr': expected a number > 0");
  expect(kAdam + "[lr_finder]\nmin_lr = 2.0\n", "'lr_finder.min_lr' is not below 'lr_finder.max_lr'");
  expect(kAdam + "[lr_finder]\nnum_training_steps = 1\n", "'lr_finder.num_training_steps': expected");
  expect(kAdam + "[lr_finder]\nmode = \"log\"\n", "expected one of \"exponential\", \"linear\"");
  expect(kAdam + "[lr_finder]\nearly_stop_threshold = -1.0\n", "'lr_finder.early_stop_threshold': expected");
  expect(kAdam + "[lr_finder]\nupdate_atr = true\n", "did you mean 'update_attr'?");
  expect(kAdam + "[batch_finder]\nmode = \"double\"\n", "expected one of \"power\", \"binsearch\"");
  expect(kAdam + "[batch_finder]\nsteps_per_trial = 0\n", "'batch_finder.steps_per_trial': expected");
  expect(kAdam + "[batch_finder]\ninit_val = 0\n", "'batch_finder.init_val': expected");
  expect(kAdam + "[batch_finder]\nmax_trials = 0\n", "'batch_finder.max_trials': expected");
  expect("[optimizer]\nname = \"lbfgs\"\n[lr_finder]\n",
         "'lr_finder' requires steps with one loss and one learning rate, but 'lbfgs' evaluates the loss");
  expect(kAdam + "lr = 0.0\n[lr_finder]\n", "'lr_finder' requires an 'optimizer.lr' above 0");
  expect(kAdam + "[batch_finder]\nmargin = 1.0\n", "'batch_finder.margin': expected");
  const std::string one_cycle = kAdam + "[schedule]\nname = \"one_cycle\"\nmax_lr = 0.1\n[lr_finder]\n";
  expect(one_cycle, "'lr_finder' sets 'optimizer.lr', but the schedule defines its own rates");
  EXPECT_EQ(fit("checked", one_cycle + "update_attr = false\n", {"--check"}).exit_code, 0);
  const std::string cosine = kAdam + "[schedule]\nname = \"cosine\"\nwarmup_steps = 4\n[lr_finder]\n";
  EXPECT_EQ(fit("checked", cosine, {"--check"}).exit_code, 0);
}

TEST_F(Finders, RefuseModelsThatCreateOptimizers) {
  struct Manual : ManualModule {
    NamedOptimizers configure_named_optimizers() override { return {}; }
  };
  struct OwnLbfgs : Module {
    OwnLbfgs() { register_parameter("weight", at::zeros({1})); }
    std::unique_ptr<Optimizer> configure_optimizers() override { return std::make_unique<Lbfgs>(*this); }
  };
  Registry registry;
  register_builtin(registry);
  registry.model<Manual>("manual", "has optimizers of its own");
  registry.model<OwnLbfgs>("own_lbfgs", "has an optimizer of its own");
  for (const std::string model : {"manual", "own_lbfgs"}) {
    write_text(scratch_ / "own.toml", "[model]\nname = \"" + model +
                                          "\"\n[data]\nname = \"digits\"\n[trainer]\nmax_epochs = 1\n"
                                          "[lr_finder]\nupdate_attr = false\n");
    const ProgramRun refused = run_program(
        {"fit", "-c", (scratch_ / "own.toml").string(), "run.dir=" + (scratch_ / "runs").string()}, registry);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("own.toml:7:2: error: find_lr: "), std::string::npos) << refused.err;
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
}

TEST_F(Finders, TrainWithTheLargestBatch) {
  const ProgramRun found = fit("batch", kAdam + "[batch_finder]\ninit_val = 3\nmax_trials = 4\n");
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_NE(found.out.find("batch_finder   data.batch_size = 24\n"), std::string::npos) << found.out;
  EXPECT_EQ(value("batch", "data.batch_size"), "24");
  EXPECT_NE(text_of(run("batch") / "log.txt").find("batch size 24 fits"), std::string::npos);
  EXPECT_EQ(value("batch", "run.compact_memory"), "false");  // there is no limit
  ASSERT_EQ(fit("plain", kAdam, {"data.batch_size=24"}).exit_code, 0);
  expect_same_run(run("batch"), run("plain"));
}

// Draws random numbers when it is created; a search creates it again.
struct DrawnDigits : Digits {
  explicit DrawnDigits(DataOptions options) : Digits(std::move(options)) { at::rand({3}); }
};

TEST_F(Finders, RecreatedDataKeepsTheRandomNumbers) {
  Registry registry;
  register_builtin(registry);
  registry.data<DrawnDigits>("drawn", "digits that draw random numbers");
  write("searched", kAdam + "[batch_finder]\ninit_val = 3\nmax_trials = 4\n");
  write("written", kAdam);
  const auto fit_drawn = [&](const std::string& name, const std::string& word) {
    const ProgramRun run_of =
        run_program({"fit", "-c", (scratch_ / (name + ".toml")).string(),
                     "run.dir=" + (scratch_ / "runs").string(), "data.name=drawn", word},
                    registry);
    EXPECT_EQ(run_of.exit_code, 0) << run_of.err;
  };
  fit_drawn("searched", "data.batch_size=64");
  fit_drawn("written", "data.batch_size=24");
  expect_same_run(run("searched"), run("written"));
}

// LibTorch alone takes some 420 MB of address space; 1438 samples with 256 channels do not fit into the rest.
// The binary search ends close to the limit, and its result must suffice for the whole run, also after a
// resume.
TEST_F(Finders, TrainWithTheFoundBatchUnderAMemoryLimit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer takes an address space of its own";
#endif
  if (has_cuda_libraries()) GTEST_SKIP() << "CUDA's libraries alone take gigabytes of addresses";
  write(
      "limited",
      kAdam + "[batch_finder]\nmode = \"binsearch\"\nsteps_per_trial = 1\ninit_val = 512\nmax_trials = 6\n");
  const auto output = scratch_ / "output.txt";
  const auto run_limited = [&](std::vector<std::string> words) {
    return Process(std::move(words), output, ".", rlim_t{640} << 20U).wait();
  };
  EXPECT_EQ(run_limited({"fit", "-c", (scratch_ / "limited.toml").string(),
                         "run.dir=" + (scratch_ / "runs").string(), "model.channels=[256]",
                         "trainer.max_epochs=1", "trainer.limit_train_batches=1"}),
            0)
      << text_of(output);
  std::int64_t smallest = 0;  // of those that did not fit, by the log
  std::istringstream lines(text_of(run("limited") / "log.txt"));
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find("batch size "), end = line.find(" does not fit: out of memory");
    if (begin == std::string::npos || end == std::string::npos) continue;
    const std::int64_t size = std::stoll(line.substr(begin + std::strlen("batch size ")));
    smallest = smallest == 0 ? size : std::min(smallest, size);
  }
  EXPECT_NE(text_of(output).find(", out of memory at " + std::to_string(smallest) + "\n"), std::string::npos)
      << text_of(output);
  const auto size = std::stoll(value("limited", "data.batch_size"));
  EXPECT_GE(size, 64);
  EXPECT_LT(size, 1438);
  EXPECT_EQ(value("limited", "run.compact_memory"), "true");
  EXPECT_EQ(run_limited({"fit", "--resume", run("limited").string(), "trainer.max_epochs=2"}), 0)
      << text_of(output);
}

TEST_F(Finders, StopOnASignal) {
  const std::string lr = "[lr_finder]\nnum_training_steps = 1000000\n";
  for (const auto& [name, tables] :
       {std::pair{"stopped", lr}, std::pair{"both", "[batch_finder]\nsteps_per_trial = 1000000\n" + lr}}) {
    write(name, kAdam + tables);
    const auto output = scratch_ / "output.txt";
    Process process({"fit", "-c", (scratch_ / (std::string(name) + ".toml")).string(),
                     "run.dir=" + (scratch_ / "runs").string()},
                    output);
    const auto summary_file = run(name) / "run.json";
    process.wait_until([&] { return std::filesystem::exists(summary_file); });
    std::this_thread::sleep_for(
        std::chrono::milliseconds(100));  // the handlers are installed immediately afterwards
    process.send(SIGINT);
    EXPECT_EQ(process.wait(), 130) << text_of(output);
    const auto summary = nlohmann::json::parse(text_of(summary_file));
    EXPECT_EQ(summary["status"], "stopped");
    EXPECT_EQ(summary["reason"], "requested");
    // A new run searches.
    EXPECT_EQ(value(name, "lr_finder.num_training_steps"), "1000000");
    EXPECT_EQ(value(name, "data.batch_size"), "64");
    EXPECT_FALSE(std::filesystem::exists(run(name) / "lr_finder.svg"));
    EXPECT_EQ(text_of(output).find("_finder"), std::string::npos) << text_of(output);
  }
  EXPECT_EQ(value("both", "batch_finder.steps_per_trial"), "1000000");
}

}  // namespace
}  // namespace kindling
