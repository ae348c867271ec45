// Training runs that the program continues from Python, and exports to Python.

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/formats/torch_optimizer.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdamW = "optimizer.name=adamw";

std::vector<std::string> digits_fit(const fs::path& runs, std::vector<std::string> more) {
  std::vector<std::string> words{"fit",
                                 "model.name=mlp",
                                 "model.hidden=[8]",
                                 "data.name=digits",
                                 "--quiet",
                                 "name=d",
                                 "data.shuffle=false",
                                 kAdamW,
                                 "optimizer.amsgrad=true",
                                 "optimizer.lr=0.01",
                                 "run.dir=" + runs.string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_fit(const std::vector<std::string>& words) {
  const ProgramRun run = run_program(words);
  ASSERT_EQ(run.exit_code, 0) << run.err;
}

fs::path checkpoint_of_step(const fs::path& run, const char* step) {
  return run / "checkpoints" / ("step-000000" + std::string(step) + ".safetensors");
}

TEST(PythonsTraining, ContinuesWithWeightsAndOptimizer) {
  const Scratch scratch;
  const fs::path runs = scratch / "runs";
  // A run of the program creates the files: an epoch of 23 batches, without shuffling.
  expect_fit(digits_fit(runs, {"trainer.max_epochs=2", "checkpoint.keep_last=2"}));
  const fs::path first = checkpoint_of_step(runs / "d" / "0001", "23"), weights = scratch / "w.pt",
                 state = scratch / "o.pt";
  ASSERT_TRUE(fs::exists(first));
  ASSERT_EQ(run_program({"export", first, weights}).exit_code, 0);
  const ProgramRun out = run_program({"export", first, state, "--optimizer"});
  ASSERT_EQ(out.exit_code, 0) << out.err;
  EXPECT_EQ(out.out, "the optimizer state for 4 parameters of " + first.string() + " written to " +
                         state.string() + "\n");
  EXPECT_EQ(open_torch_optimizer(state).groups.at(0).options.at("amsgrad"), TorchOptions::mapped_type(true));
  expect_fit(digits_fit(runs, {"trainer.max_epochs=1", "model.init_weights=" + weights.string(),
                               "optimizer.init_state=" + state.string()}));
  const StateDict wanted = load_safetensors(runs / "d" / "0001" / "weights.safetensors"),
                  found = load_safetensors(runs / "d" / "0002" / "weights.safetensors");
  expect_same_tensors(found, wanted);
  // Without the optimizer state, the second epoch differs.
  expect_fit(digits_fit(runs, {"trainer.max_epochs=1", "model.init_weights=" + weights.string()}));
  EXPECT_FALSE(load_safetensors(runs / "d" / "0003" / "weights.safetensors")
                   .tensors[0]
                   .second.equal(wanted.tensors[0].second));
}

TEST(PythonsTraining, LoadsFromOneFileWithKeys) {
  const Scratch scratch;
  const std::string nested = fs::path(KINDLING_FIXTURES) / "torch_2.13.0/nested.pt";
  const auto fit = [&](std::vector<std::string> more) {
    std::vector<std::string> words{
        "fit",     "model.name=linear_regression", "data.name=synthetic_regression",
        "--quiet", "trainer.max_steps=1",          "run.dir=" + (scratch / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const auto expect_refused = [&](std::vector<std::string> more, int exit_code, const std::string& text) {
    const ProgramRun run = fit(std::move(more));
    EXPECT_EQ(run.exit_code, exit_code);
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
    EXPECT_FALSE(fs::exists(scratch / "runs"));  // refused before a run is created
  };
  expect_refused({"model.init_weights=" + nested}, 1, "the key \"model\", which is a state dict");
  expect_refused({"model.init_weights=" + nested, "model.init_key=model"}, 1,
                 "the values do not fit the model");  // they were found
  expect_refused({"optimizer.init_state=" + nested}, 2, "expected: model.init_weights in addition");
  save_torch({{{"net.0.weight", at::zeros({1, 2})}, {"net.0.bias", at::zeros({1})}}, {}}, scratch / "w.pt");
  const std::string weights = "model.init_weights=" + (scratch / "w.pt").string();
  expect_refused({weights, "optimizer.init_state=" + nested}, 1,
                 "one of the keys of optimizers: \"optimizer\"");
  expect_refused(
      {weights, "optimizer.init_state=" + nested, "optimizer.init_key=optimizer", "optimizer.name=adam"}, 1,
      "'decoupled_weight_decay' is true in the file and false here");
  expect_refused({weights, "optimizer.init_state=" + nested, "optimizer.init_key=optimizer", kAdamW,
                  "optimizer.amsgrad=true"},
                 1, "has the shape");
}

TEST(PythonsTraining, IsWrittenAsATorchFile) {
  const Scratch scratch;
  const ProgramRun run = run_program({"export", scratch / "run", scratch / "x.safetensors", "--optimizer"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("the optimizer state is written to a .pt file"), std::string::npos) << run.err;
  EXPECT_EQ(run_program({"export", scratch / "run", scratch / "x.pt", "--optimizer"}).exit_code, 2);
}

}  // namespace
}  // namespace kindling
