// A run on windows of a table, from the config to predictions and exported programs.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class WindowRun : public testing::Test {
 protected:
  // Two sensors, whose rows alternate, measure a sine of 20 steps.
  static std::string rows(int begin, int end) {
    std::string text = "sensor,step,value\n";
    for (int i = begin; i < end; ++i)
      for (const char* const sensor : {"a", "b"})
        text += std::string(sensor) + "," + std::to_string(i) + "," +
                std::to_string(10 + std::sin(i * 0.314159265 + (*sensor == 'b' ? 1 : 0))) + "\n";
    return text;
  }
  void SetUp() override {
    write_text(scratch_ / "sensors.csv", rows(0, 200));
    write_text(
        scratch_ / "sensors.toml",
        "[model]\nname = \"mlp_regressor\"\nhidden = [16]\n[data]\nname = \"csv\"\nfile = \"sensors.csv\"\n"
        "target = \"value\"\nwindow = 8\nseries = \"sensor\"\ntime = \"step\"\nval_fraction = 0.2\n"
        "batch_size = 32\n[optimizer]\nname = \"adam\"\nlr = 0.01\n[trainer]\nmax_epochs = 20\n"
        "num_threads = 1\nnum_gpus = 0\n");
  }
  ProgramRun fit(const std::string& runs, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"fit", scratch_ / "sensors.toml", "--quiet", "--progress=none",
                                   "run.dir=" + (scratch_ / runs).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  fs::path run(const std::string& runs = "runs") const { return scratch_ / runs / "sensors/0001"; }
  double last_val_loss(const std::string& runs = "runs") const {
    return records_of(run(runs)).back().at("val_loss");
  }

  Scratch scratch_;
};

// The variance of the values is 0.5.
TEST_F(WindowRun, LearnsToForecast) {
  const ProgramRun checked = fit("runs", {"--check"});
  ASSERT_EQ(checked.exit_code, 0) << checked.err;
  const ProgramRun fitted = fit("runs");
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_LT(last_val_loss(), 0.05);
}

TEST_F(WindowRun, ResumesBitIdentically) {
  ASSERT_EQ(fit("straight", {"trainer.max_epochs=3"}).exit_code, 0);
  ASSERT_EQ(fit("stopped", {"trainer.max_epochs=3", "checkpoint.every_n_steps=4", "checkpoint.keep_last=20"})
                .exit_code,
            0);
  const std::string weights = text_of(run("straight") / "weights.safetensors");
  fs::remove(run("stopped") / "weights.safetensors");
  const ProgramRun resumed =
      run_program({"fit", "--resume", (run("stopped") / "checkpoints/step-00000016.safetensors").string(),
                   "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(text_of(run("stopped") / "weights.safetensors") == weights);
}

TEST_F(WindowRun, PredictsTheNextRowOfEachWindow) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  write_text(scratch_ / "new.csv", rows(300, 308));
  fs::remove(scratch_ / "sensors.csv");
  const ProgramRun predicted = run_program({"predict", run().string(), (scratch_ / "new.csv").string(),
                                            "--out", (scratch_ / "p.csv").string(), "--quiet"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  std::string text = text_of(scratch_ / "p.csv"), header;
  std::istringstream lines(text);
  std::getline(lines, header);
  EXPECT_EQ(header, "sample,row,output_0");
  // The last rows of the two windows are 15 and 16 of the file; row 308 has the next values.
  for (const auto& [begin, phase] : std::vector<std::pair<std::string, double>>{{"0,15,", 0}, {"1,16,", 1}}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    ASSERT_TRUE(line.starts_with(begin)) << line;
    EXPECT_NEAR(std::stod(line.substr(begin.size())), 10 + std::sin(308 * 0.314159265 + phase), 0.3);
  }
}

TEST_F(WindowRun, ChecksItsDataAndRefusesAShorterFile) {
  const ProgramRun data = run_program({"data", "check", (scratch_ / "sensors.toml").string()});
  ASSERT_EQ(data.exit_code, 0) << data.err;
  EXPECT_NE(data.out.find("[8, 1]"), std::string::npos) << data.out;
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=1"}).exit_code, 0);
  write_text(scratch_ / "new.csv", rows(0, 7));
  const ProgramRun predicted = run_program({"predict", run().string(), (scratch_ / "new.csv").string()});
  EXPECT_NE(predicted.exit_code, 0);
  EXPECT_NE(predicted.err.find("no series has 8 rows"), std::string::npos) << predicted.err;
}

TEST_F(WindowRun, StartsOnlyFromWeightsOfTheSameWindows) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=1"}).exit_code, 0);
  const ProgramRun started =
      fit("more", {"trainer.max_epochs=1", "data.window=9", "model.init_weights=" + run().string()});
  EXPECT_EQ(started.exit_code, 2);
  EXPECT_NE(started.err.find(
                "the weights were trained with windows of 8 rows where the data has windows of 9 rows; "
                "expected: the same data.window"),
            std::string::npos)
      << started.err;
}

// A program that begins with the transform, and an LSTM of PyTorch. Python starts once, because that takes
// seconds.
TEST_F(WindowRun, TrainsAndExportsProgramsThatTakeWindows) {
  const fs::path tests = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands";
  ASSERT_EQ(fit("runs").exit_code, 0);
  write_text(scratch_ / "new.csv", rows(300, 308));
  ASSERT_EQ(run_program({"predict", run().string(), (scratch_ / "new.csv").string(), "--out",
                         (scratch_ / "new.jsonl").string(), "--quiet"})
                .exit_code,
            0);
  ASSERT_EQ(run_program({"export", run().string(), (scratch_ / "sensors.pt2").string()}).exit_code, 0);
  const std::string script = KINDLING_VENV_PYTHON " " + (tests / "window_programs.py").string() + " " +
                             scratch_.folder().string() + " 2>/dev/null";
  const int status = std::system(script.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "Python cannot import torch";
  ASSERT_EQ(status, 0) << "the program predicts other numbers, or the LSTM cannot be exported";
  std::string config = text_of(scratch_ / "sensors.toml");
  config.replace(0, config.find("[data]"),
                 "[model]\nname = \"exported\"\nfile = \"lstm.pt2\"\nloss = \"mse\"\n");
  write_text(scratch_ / "lstm.toml", config);
  const ProgramRun fitted =
      run_program({"fit", (scratch_ / "lstm.toml").string(), "--quiet", "--progress=none",
                   "trainer.max_epochs=2", "run.dir=" + (scratch_ / "lstm").string()});
  EXPECT_EQ(fitted.exit_code, 0) << fitted.err;
}

}  // namespace
}  // namespace kindling
