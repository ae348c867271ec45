// The keys model.init_*: which weights of a file a run starts from, and what it reports.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// A fit of an mlp with net.1 [8, 64] and net.3 [10, 8], whose weights stay as they started.
class InitWeights : public testing::Test {
 protected:
  ProgramRun fit(const std::vector<std::string>& model_keys, const StateDict& saved) {
    save_safetensors(saved, file_);
    std::vector<std::string> words{"fit",
                                   "model.name=mlp",
                                   "model.hidden=[8]",
                                   "model.freeze=[\"net.1.*\"]",
                                   "data.name=digits",
                                   "data.train=[0, 100]",
                                   "trainer.max_steps=1",
                                   "name=m",
                                   "--progress=none",
                                   "run.dir=" + (scratch_ / "runs").string(),
                                   "model.init_weights=" + file_.string()};
    for (const std::string& key : model_keys) words.push_back("model." + key);
    return run_program(words);
  }
  at::Tensor trained(const std::string& name) const {
    return *load_safetensors(run_ / "weights.safetensors").find(name);
  }
  void expect_refused(const std::vector<std::string>& model_keys, int exit_code, const std::string& text) {
    const ProgramRun run = fit(model_keys, encoder_);
    EXPECT_EQ(run.exit_code, exit_code);
    EXPECT_EQ(run.err, text);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
  }

  const Scratch scratch_;
  const std::filesystem::path file_ = scratch_ / "w.safetensors", run_ = scratch_ / "runs/m/0001";
  const at::Tensor weight_ = at::randn({8, 64}), bias_ = at::randn({8});
  const StateDict encoder_{.tensors = {{"enc.fc.weight", weight_}, {"enc.fc.bias", bias_}}, .metadata = {}};
};

TEST_F(InitWeights, LoadsWhatMatchesAndReportsTheRest) {
  const ProgramRun run = fit({"init_strict=false"}, {.tensors = {{"net.1.weight", weight_},
                                                                 {"net.1.bias", bias_},
                                                                 {"net.3.weight", at::randn({5, 8})},
                                                                 {"head.bias", at::randn({5})}},
                                                     .metadata = {}});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string report[] = {"2 tensors loaded",
                                "1 tensor of another shape, skipped: net.3.weight ([5, 8], the model's is "
                                "[10, 8])",
                                "1 tensor not in the file, initialized: net.3.bias",
                                "1 tensor not in the model, skipped: head.bias"};
  std::string printed = "weights  " + file_.string() + "\n";
  for (const std::string& line : report) {
    printed += "  " + line + "\n";
    EXPECT_NE(text_of(run_ / "log.txt").find("info: model.init_weights: " + line + "\n"), std::string::npos);
  }
  EXPECT_EQ(run.err, printed);
  EXPECT_TRUE(same(trained("net.1.weight"), weight_));
  EXPECT_TRUE(same(trained("net.1.bias"), bias_));
  EXPECT_EQ(trained("net.3.weight").sizes(), at::IntArrayRef({10, 8}));
}

TEST_F(InitWeights, RenamesByPrefixAndMap) {
  StateDict saved = encoder_;
  saved.tensors.emplace_back("other.weight", at::ones({1}));  // without the prefix, not read
  const ProgramRun run = fit({"init_strict=false", "init_prefix=enc.", "init_map=[\"fc.=net.1.\"]"}, saved);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "weights  " + file_.string() +
                         "\n  2 tensors loaded\n  1 tensor not in the file, initialized: net.3.weight\n");
  EXPECT_TRUE(same(trained("net.1.weight"), weight_));
  EXPECT_TRUE(same(trained("net.1.bias"), bias_));
}

TEST_F(InitWeights, StrictlyLoadsRenamedNames) {
  StateDict saved = encoder_;
  saved.tensors.emplace_back("enc.out.weight", at::randn({10, 8}));
  saved.tensors.emplace_back("enc.out.bias", at::randn({10}));
  const std::vector<std::string> keys{"init_prefix=enc.", "init_map=[\"fc.=net.1.\", \"out=net.3\"]"};
  const ProgramRun run = fit(keys, saved);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_TRUE(same(trained("net.1.weight"), weight_));
  // Evaluations read the same keys.
  const ProgramRun validated = run_program({"validate", "-c", (run_ / "config.toml").string()});
  EXPECT_EQ(validated.exit_code, 0) << validated.err;
}

TEST_F(InitWeights, TakesWeightsFromARunOfAnotherModel) {
  ASSERT_EQ(fit({}, {.tensors = {{"net.1.weight", weight_},
                                 {"net.1.bias", bias_},
                                 {"net.3.weight", at::randn({10, 8})},
                                 {"net.3.bias", at::randn({10})}},
                     .metadata = {}})
                .exit_code,
            0);
  const ProgramRun run =
      run_program({"fit", "model.name=mlp", "model.hidden=[8, 6]", "model.freeze=[\"net.1.*\"]",
                   "data.name=digits", "data.train=[0, 100]", "trainer.max_steps=1", "name=n",
                   "--progress=none", "run.dir=" + (scratch_ / "runs").string(),
                   "model.init_weights=" + run_.string(), "model.init_strict=false"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("\n  2 tensors loaded\n"
                         "  2 tensors of another shape, skipped: net.3.weight ([10, 8], the model's is "
                         "[6, 8]), net.3.bias ([10], the model's is [6])\n"),
            std::string::npos)
      << run.err;
  const StateDict weights = load_safetensors(scratch_ / "runs/n/0001/weights.safetensors");
  EXPECT_TRUE(same(*weights.find("net.1.weight"), weight_));
}

TEST_F(InitWeights, RefusesRulesWithoutEffect) {
  const std::string file = file_.string(), of_key = "'model.init_weights': ";
  expect_refused({"init_prefix=encoder."}, 2,
                 "command line: model.init_prefix=encoder.: error: 'model.init_prefix': no name in " + file +
                     " begins with 'encoder.'; expected: the beginning of a tensor name, such as 'enc.'\n"
                     "1 error, nothing was run\n");
  expect_refused({"init_prefix=enc.", "init_map=[\"fcc.=net.1.\"]"}, 2,
                 "command line: model.init_map=[\"fcc.=net.1.\"]: error: model.init_map fcc.=net.1.: no name "
                 "begins with 'fcc.'; expected: the beginning of a tensor name\n1 error, nothing was run\n");
  expect_refused({"init_map=[\"enc.fc\"]"}, 2,
                 "command line: model.init_map=[\"enc.fc\"]: error: model.init_map enc.fc: '=' is missing; "
                 "expected: model.init_map FROM=TO\n1 error, nothing was run\n");
  expect_refused({"init_strict=false"}, 1,
                 of_key + file +
                     ": none of its 2 tensors has the name and shape of a parameter of the model; expected: "
                     "at least one; the file has names such as 'enc.fc.weight', the model 'net.1.weight': "
                     "rename them with model.init_prefix and model.init_map\n");
  const std::string strict = "the values do not fit the model; expected: the names and shapes of the model;";
  EXPECT_NE(fit({"init_prefix=enc.", "init_map=[\"fc.=net.1.\"]"}, encoder_).err.find(strict),
            std::string::npos);
}

TEST_F(InitWeights, RefusesKeysWithoutWeights) {
  const ProgramRun run =
      run_program({"fit", "--check", "model.name=mlp", "data.name=digits", "trainer.max_epochs=1",
                   "model.init_strict=false", "model.init_prefix=a", "model.init_map=[\"a=b\"]"});
  EXPECT_EQ(run.exit_code, 2);
  for (const char* key : {"model.init_prefix", "model.init_map", "model.init_strict"})
    EXPECT_NE(run.err.find("'" + std::string(key) + "' has no effect without 'model.init_weights'"),
              std::string::npos)
        << run.err;
}

}  // namespace
}  // namespace kindling
