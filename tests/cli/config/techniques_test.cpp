// Early stopping and weight averaging from a config, and the averaged weights in every command.
#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class Techniques : public testing::Test {
 protected:
  ProgramRun fit(const std::string& tables, std::vector<std::string> more = {}) {
    write_text(
        scratch_ / "own.toml",
        "[model]\nname = \"small_cnn\"\nchannels = [4]\n[data]\nname = \"digits\"\n[optimizer]\nname = "
        "\"adam\"\nlr = 0.01\n[trainer]\nmax_epochs = 4\nlimit_train_batches = 4\n" +
            tables);
    std::vector<std::string> words{"fit", "-c", (scratch_ / "own.toml").string(),
                                   "run.dir=" + (scratch_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  // What validate prints of a file or run.
  std::map<std::string, double> validate(const std::filesystem::path& weights) {
    const ProgramRun run =
        run_program({"validate", "-c", (scratch_ / "own.toml").string(), "--weights", weights.string()});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::map<std::string, double> values;
    std::istringstream lines(run.out);
    std::string name;
    for (double value = 0; lines >> name >> value;) values[name] = value;
    return values;
  }
  nlohmann::json summary() const { return nlohmann::json::parse(text_of(run_folder_ / "run.json")); }

  const Scratch scratch_;
  const std::filesystem::path run_folder_ = scratch_ / "runs/own/0001";
};

// The monitored value of a checkpoint is that of its weights, also after they are exported.
TEST_F(Techniques, RunsEvaluateWithValidatedWeights) {
  int number = 0;
  for (const std::string average :
       {"[ema]\ndecay = 0.9\n", "[swa]\nswa_lrs = [0.02]\nswa_epoch_start = 2\n"}) {
    std::filesystem::remove_all(scratch_ / "runs");
    ASSERT_EQ(fit(average, {"checkpoint.keep_last=4", "trainer.log_every_n_steps=1"}).exit_code, 0);
    std::vector<nlohmann::json> epochs;
    std::istringstream lines(text_of(run_folder_ / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("val_loss")) epochs.push_back(record);
    }
    const auto checkpoints = list_checkpoints(run_folder_ / "checkpoints");
    ASSERT_EQ(epochs.size(), 4U);
    ASSERT_EQ(checkpoints.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {  // 1e-12: printed and read
      const auto values = validate(checkpoints[3 - i].path);
      EXPECT_NEAR(values.at("val_loss"), epochs[i]["val_loss"].get<double>(), 1e-12) << average << i;
      EXPECT_NEAR(values.at("val_acc"), epochs[i]["val_acc"].get<double>(), 1e-12) << average << i;
    }
    EXPECT_EQ(validate(run_folder_.string() + ":last"), validate(checkpoints[0].path)) << average;
    const auto best = best_valid_checkpoint(run_folder_ / "checkpoints");
    ASSERT_TRUE(best);
    EXPECT_EQ(validate(run_folder_), validate(best->path)) << average;
    // Exports from both are the same; the weights of the model without averaging differ.
    const auto exported = [&](const std::filesystem::path& from) {
      const auto file = scratch_ / ("out" + std::to_string(++number) + ".safetensors");
      EXPECT_EQ(run_program({"export", from.string(), file.string()}).exit_code, 0);
      return load_safetensors(file);
    };
    const StateDict of_run = exported(run_folder_.string() + ":last"),
                    of_checkpoint = exported(checkpoints[0].path);
    const StateDict all = load_safetensors(checkpoints[0].path);
    bool differs_from_own = false;
    for (const auto& [name, tensor] : of_run.tensors) {
      EXPECT_TRUE(same(tensor, *of_checkpoint.find(name))) << name;
      differs_from_own |= !same(tensor, *all.find("model." + name));
    }
    EXPECT_TRUE(differs_from_own);
  }
}

TEST_F(Techniques, AreOffWithoutTheirTables) {
  const std::string off = fit("", {"--print-config"}).out;
  for (const char* table : {"[on_spike]", "[early_stopping]", "[ema]", "[swa]"})
    EXPECT_EQ(off.find(table), std::string::npos) << off;
  const std::string on = fit("[on_spike]\n[early_stopping]\n[ema]\n[swa]\nswa_lrs = [0.1]\nevaluate = "
                             "false\napply_at_end = false\n",
                             {"--print-config"})
                             .out;
  for (const char* line :
       {"[on_spike]", "window = 100", "[early_stopping]", "patience = 3", "[ema]", "decay = 0.999", "[swa]",
        "swa_epoch_start = 0.8", "annealing_strategy = \"cos\"", "swa_lrs = [0.1]"})
    EXPECT_NE(on.find(line), std::string::npos) << line << "\n" << on;
  write_text(scratch_ / "printed.toml", on);
  EXPECT_EQ(run_program({"fit", "--check", "-c", (scratch_ / "printed.toml").string()}).exit_code, 0);
}

TEST_F(Techniques, AreCheckedBeforeTheRun) {
  const auto error_of = [&](const std::string& tables) {
    const ProgramRun run = fit(tables, {"--check"});
    EXPECT_EQ(run.exit_code, 2) << tables;
    return run.err;
  };
  const auto expect = [&](const std::string& tables, const std::string& text) {
    EXPECT_NE(error_of(tables).find(text), std::string::npos) << error_of(tables);
  };
  expect("[swa]\n", "'swa.swa_lrs' is missing: the final learning rate, such as [0.01]");
  expect("[swa]\nswa_lrs = 0.1\n", "'swa.swa_lrs': expected an array of numbers");
  expect("[swa]\nswa_lrs = [0.0]\n", "'swa.swa_lrs[0]': expected a number > 0");
  expect("[swa]\nswa_lrs = [0.1]\nannealing_strategy = \"cosine\"\n", "expected one of \"cos\", \"linear\"");
  expect("[ema]\ndecay = 1.1\n", "'ema.decay': expected a number");
  expect("[ema]\n[swa]\nswa_lrs = [0.1]\n", "the model can have one average at a time");
  expect("[on_spike]\nfactor = 1.0\n", "'on_spike.factor': expected a number > 1");
  expect("[on_spike]\nwindow = 7\n", "'on_spike.window': expected an integer >= 8");
  expect("[on_spike]\naction = \"stop\"\n", "expected one of \"warn\", \"skip\"");
  expect("[early_stopping]\npatience = -1\n", "'early_stopping.patience': expected an integer");
  expect("[early_stopping]\npatient = 3\n", "did you mean 'patience'?");
}

// The losses of an untrained model differ by its batches alone, and the factor is small.
TEST_F(Techniques, SpikesAreCountedInTheRecords) {
  const ProgramRun run = fit("[on_spike]\nfactor = 1.001\nwindow = 8\naction = \"skip\"\n",
                             {"optimizer.lr=1e-6", "trainer.max_epochs=1", "trainer.limit_train_batches=40"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(text_of(run_folder_ / "metrics.jsonl").find("\"spikes\":"), std::string::npos);
  EXPECT_NE(run.err.find("skipped"), std::string::npos) << run.err;
}

TEST_F(Techniques, EarlyStoppingEndsTheRunAndItsResume) {
  const std::string tables = "[early_stopping]\npatience = 1\nmin_delta = 100.0\n";
  const ProgramRun run = fit(tables);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(summary()["status"], "stopped");
  EXPECT_EQ(summary()["reason"], "early_stop");
  EXPECT_EQ(summary()["global_step"], 8);
  EXPECT_NE(run.out.find("\nstopped early: val_acc has not improved for 1 epoch\ndone in "),
            std::string::npos)
      << run.out;
  EXPECT_NE(text_of(run_folder_ / "log.txt").find("early stop: val_acc is "), std::string::npos);
  const ProgramRun again = fit(tables, {"--resume", run_folder_.string()});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(summary()["global_step"], 8);
  // More patience does not change the steps.
  const ProgramRun longer = fit(tables, {"--resume", run_folder_.string(), "early_stopping.patience=2"});
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(summary()["global_step"], 12);
}

}  // namespace
}  // namespace kindling
