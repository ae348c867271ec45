#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "cli/commands/program_run.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig =
    "seed = 0\n[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\n[trainer]\nmax_epochs = 1\n";
constexpr const char* kStep1 = "{\"global_step\": 1, \"epoch\": 1, \"train_loss_step\": 2.5, \"lr\": 0.1}\n";
constexpr const char* kStep2 = "{\"global_step\": 2, \"epoch\": 1, \"train_loss_step\": 2.25, \"lr\": 0.1}\n";
constexpr const char* kEpoch =
    "{\"epoch\": 1, \"global_step\": 2, \"train_loss\": 2.375, \"val_loss\": null, \"epoch_time_s\": 0.5, "
    "\"host_waits\": 0}\n";

StateDict small_model(double last = 0.5) {
  return {.tensors = {{"net.1.weight", at::ones({2, 3})}, {"net.1.bias", at::tensor({0.25, last})}},
          .metadata = {}};
}

StateDict small_checkpoint(double last = 0.5) {
  StateDict state{.tensors = {{"random.0", at::zeros({4}, at::kLong)}},
                  .metadata = {{"progress.global_step", "2"}}};
  for (const auto& [name, tensor] : small_model(last).tensors) {
    state.tensors.emplace_back("optimizer." + name + ".exp_avg", tensor);
    state.tensors.emplace_back("model." + name, tensor);
  }
  return state;
}

fs::path step_file(const fs::path& run, int step) {
  return run / "checkpoints" / ("step-0000000" + std::to_string(step) + ".safetensors");
}

// The files of a run.
fs::path small_run(const fs::path& folder) {
  fs::create_directories(folder / "checkpoints");
  write_text(folder / "config.toml", kConfig);
  write_text(folder / "metrics.jsonl", std::string(kStep1) + kStep2 + kEpoch);
  for (const int step : {1, 2}) save_checkpoint(small_checkpoint(), step_file(folder, step));
  save_safetensors(small_model(), folder / "weights.safetensors");
  return folder;
}

struct TwoRuns {
  Scratch scratch;
  const fs::path a = small_run(scratch / "a"), b = small_run(scratch / "b");

  ProgramRun diff(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"diff", a, b});
    return run_program(options);
  }
};

void expect_diff(const ProgramRun& run, int exit_code, const std::string& line) {
  EXPECT_EQ(run.exit_code, exit_code) << run.out << run.err;
  EXPECT_NE((run.out + run.err).find(line), std::string::npos) << run.out << run.err;
}

TEST(Diff, ReportsWhatWasComparedForEqualRuns) {
  const TwoRuns runs;
  write_text(
      runs.b / "metrics.jsonl",  // another machine's times
      std::string(kStep1) + kStep2 + std::string(kEpoch).replace(std::string(kEpoch).find("0.5"), 3, "0.7"));
  const ProgramRun run = runs.diff();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.substr(run.out.find("metrics")),
            "metrics   equal, 3 records\n"
            "step 1    equal, 5 tensors\n"
            "step 2    equal, 5 tensors\n"
            "weights   equal, 2 tensors\n");
  EXPECT_EQ(run.out.find("config    equal, "), 0u) << run.out;
  EXPECT_EQ(run.err, "");
}

TEST(Diff, FindsADifferentSeedAndItsEffects) {
  const Scratch scratch;
  for (const char* seed : {"0", "0", "1"}) {
    const ProgramRun fit =
        run_program({"fit", "-c", kConfigs / "digits.toml", "--quiet", "--seed", seed, "trainer.max_epochs=1",
                     "trainer.num_gpus=0", "trainer.log_every_n_steps=1", "name=d",
                     "run.dir=" + (scratch / "runs").string()});
    ASSERT_EQ(fit.exit_code, 0) << fit.err;
  }
  const fs::path runs = scratch / "runs" / "d";
  const ProgramRun same = run_program({"diff", runs / "0001", runs / "0002"});
  EXPECT_EQ(same.exit_code, 0) << same.out;
  const ProgramRun other = run_program({"diff", runs / "0001", runs / "0003"});
  expect_diff(other, 1, "   seed   0   1\n");
  expect_diff(other, 1, "first difference at step 1, of 46 common records");
  expect_diff(other, 1, "train_loss_step");
  expect_diff(other, 1, "model.net.");
}

TEST(Diff, NamesTheFirstRecordAndItsMetrics) {
  const TwoRuns runs;
  write_text(runs.b / "metrics.jsonl",
             std::string(kStep1) +
                 "{\"global_step\": 2, \"epoch\": 1, \"train_loss_step\": 2.5, \"mine\": 1, \"lr\": null}\n" +
                 kEpoch);
  const ProgramRun run = runs.diff();
  expect_diff(
      run, 1,
      "metrics   first difference at step 2, of 3 common records; not compared, because A lacks them: "
      "mine of step records\n"
      "          metric            A      B     B - A\n"
      "          lr                0.1    nan   nan\n"
      "          train_loss_step   2.25   2.5   0.25\n");
}

// As Python writes them by the documentation.
TEST(Diff, ComparesTheColumnsThatBothRunsHave) {
  const TwoRuns runs;
  write_text(
      runs.b / "metrics.jsonl",
      "{\"global_step\": 1, \"train_loss_step\": 2.5}\n{\"global_step\": 2, \"train_loss_step\": 2.25}\n"
      "{\"epoch\": 1, \"global_step\": 2, \"train_loss\": 2.375, \"mine\": 1}\n");
  const ProgramRun run = runs.diff();
  expect_diff(
      run, 0,
      "metrics   equal, 3 records; not compared, because B lacks them: epoch, lr of step records; val_loss "
      "of epoch records; not compared, because A lacks them: mine of epoch records\n");
  // In a column that both have, each record needs its value.
  write_text(runs.b / "metrics.jsonl",
             "{\"global_step\": 1, \"train_loss_step\": 2.5, \"lr\": 0.1}\n{\"global_step\": 2, "
             "\"train_loss_step\": 2.25}\n");
  expect_diff(runs.diff(), 1,
              "metrics   first difference at step 2, of 2 common records; 1 record only in A, from step 2 "
              "(epoch) on; "
              "not compared, because B lacks them: epoch of step records\n"
              "          metric   A     B         B - A\n"
              "          lr       0.1   missing\n");
  write_text(runs.b / "metrics.jsonl", "{\"epoch\": 1, \"global_step\": 2, \"mine\": 1}\n");
  expect_diff(runs.diff(), 1, "no metric in common");
}

TEST(Diff, ReportsRecordsOfOnlyOneRun) {
  const TwoRuns runs;
  write_text(runs.b / "metrics.jsonl", kStep1 + std::string(kStep2).substr(0, 20));  // killed while it wrote
  fs::remove(step_file(runs.a, 1));
  const ProgramRun run = runs.diff();
  expect_diff(run, 1, "metrics   2 records only in A, from step 2 on; the last line of B is cut off\n");
  expect_diff(run, 1, "step 1    only in B\n");
}

TEST(Diff, NamesTheFirstTensorOfTheModelFirst) {
  const TwoRuns runs;
  save_checkpoint(small_checkpoint(0.75), step_file(runs.b, 2));
  expect_diff(runs.diff(), 1, "step 1    equal, 5 tensors\n");
  expect_diff(runs.diff(), 1,
              "step 2    2 of 5 tensors different, the first:\n"
              "          tensor             elements   max |A - B|   relative\n"
              "          model.net.1.bias   1 of 2     0.25          0.333\n");
  expect_diff(runs.diff({"--atol", "0.25"}), 0, "step 2    equal, 5 tensors\n");
  expect_diff(runs.diff({"--rtol", "0.33"}), 1, "step 2    2 of 5 tensors different");
}

TEST(Diff, ReportsTensorsThatCannotBeCompared) {
  const TwoRuns runs;
  StateDict other = small_model();
  other.tensors[0].second = at::ones({3, 2});
  other.tensors[1].first = "net.1.bais";
  save_safetensors(other, runs.b / "weights.safetensors");
  expect_diff(runs.diff(), 1,
              "weights   0 of 0 tensors different, 3 without a counterpart\n"
              "          tensor         elements                               max |A - B|   relative\n"
              "          net.1.weight   Float [2, 3] in A, Float [3, 2] in B\n"
              "          net.1.bias     only in A\n"
              "          net.1.bais     only in B\n");
}

TEST(Diff, ComparesModelsInFilesFromPython) {
  const TwoRuns runs;
  const fs::path pt = runs.scratch / "python.pt";
  save_torch(small_model(), pt);
  expect_diff(run_program({"diff", runs.a, pt}), 0, "weights   equal, 2 tensors\n");
  expect_diff(run_program({"diff", step_file(runs.a, 2), pt}), 0, "weights   equal, 2 tensors\n");
  save_safetensors(small_model(0.5 + 1e-3), pt);
  expect_diff(run_program({"diff", runs.a, pt}), 1, "net.1.bias   1 of 2     1e-3");
  // A directory of weights, step by step.
  const fs::path python = runs.scratch / "python";
  fs::create_directories(python);
  save_safetensors(small_model(0.75), python / "step-2.safetensors");
  const ProgramRun run = run_program({"diff", runs.a, python});
  expect_diff(run, 1, "step 2   1 of 2 tensors different\n");
  expect_diff(run, 1, "not compared: " + python.string() + " has no metrics.jsonl\n");
}

TEST(Diff, ComparesWholeCheckpoints) {
  const TwoRuns runs;
  expect_diff(run_program({"diff", step_file(runs.a, 1), step_file(runs.b, 2)}), 0,
              "checkpoint   equal, 5 tensors\n");
}

TEST(Diff, CountsABrokenCheckpointAsDifferent) {
  const TwoRuns runs;
  std::string bytes = text_of(step_file(runs.b, 2));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(step_file(runs.b, 2), bytes);
  expect_diff(runs.diff(), 1, "step 2    " + step_file(runs.b, 2).string());
  expect_diff(run_program({"diff", step_file(runs.a, 2), step_file(runs.b, 2)}), 2,
              "step-00000002.safetensors");
}

TEST(Diff, TakesTheNewestRunOfADirectory) {
  const Scratch scratch;
  for (const char* run : {"a/0001", "a/0002", "b/0001"}) small_run(scratch / "runs" / run);
  write_text(scratch / "runs/a/0002/metrics.jsonl", std::string(kStep1) + kEpoch);
  fs::create_directories(scratch / "runs/a/0003");  // of a start that was killed
  const ProgramRun run = run_program({"diff", scratch / "runs/a", scratch / "runs/b/0001"});
  EXPECT_EQ(run.out.find("A   " + (scratch / "runs/a/0002").string() + "\nconfig "), 0u) << run.out;
  expect_diff(run, 1, "metrics   1 record only in B, from step 2 on\n");
}

// As RunFolder makes them in a program of one's own: without a config.
TEST(Diff, TakesTheNewestRunThatHasOnlyRecords) {
  const Scratch scratch;
  for (const char* run : {"a/0001", "a/0002", "b/0001"}) {
    fs::create_directories(scratch / "runs" / run);
    write_text(scratch / "runs" / run / "metrics.jsonl", std::string(kStep1) + kEpoch);
  }
  const ProgramRun run = run_program({"diff", scratch / "runs/a", scratch / "runs/b/0001"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.find("A   " + (scratch / "runs/a/0002").string() + "\n"), 0u) << run.out;
}

TEST(Diff, ComparesRecordsOfOtherProgramsWithoutAnEpoch) {
  const TwoRuns runs;
  write_text(
      runs.b / "metrics.jsonl",
      "{\"global_step\": 1, \"train_loss_step\": 2.5}\n{\"global_step\": 2, \"train_loss_step\": 2.25}\n");
  expect_diff(runs.diff(), 1,
              "metrics   1 record only in A, from step 2 (epoch) on; not compared, because B lacks them: "
              "epoch, lr of step records\n");
}

TEST(Diff, RefusesTheDirectoryOfASweep) {
  const Scratch scratch;
  small_run(scratch / "s/001/0001");
  write_text(scratch / "s/sweep.json", "{}");
  const ProgramRun run = run_program({"diff", scratch / "s", scratch / "s/001/0001"});
  EXPECT_EQ(run.exit_code, 2);
  const std::string sweep = (scratch / "s").string();
  EXPECT_EQ(run.err, sweep + ": it is the directory of a sweep; expected: one of its runs; kindling runs " +
                         sweep + " lists them\n");
}

TEST(Diff, RefusesWhatCannotBeCompared) {
  const TwoRuns runs;
  const fs::path other = runs.scratch / "other";
  fs::create_directories(other);
  expect_diff(
      run_program({"diff", runs.a, other}), 2,
      other.string() + ": not a run directory; expected: a run directory, a checkpoint, or a weights");
  expect_diff(run_program({"diff", runs.a, other / "gone"}), 2, "no such file or directory");
  expect_diff(run_program({"diff", runs.a}), 2, "kindling diff: B is missing");
  write_text(other / "weights.pt", "no weights");
  expect_diff(run_program({"diff", runs.a, other / "weights.pt"}), 2, "weights.pt");
  write_text(runs.b / "metrics.jsonl", std::string(kStep1) + "rubbish\n" + kEpoch);
  expect_diff(runs.diff(), 2, "metrics.jsonl:2: the line is not a record");
  save_safetensors(small_model(), other / "weights.safetensors");
  fs::remove(runs.a / "weights.safetensors");
  expect_diff(run_program({"diff", runs.a, other}), 2, "they have nothing in common");
}

}  // namespace
}  // namespace kindling
